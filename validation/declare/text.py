"""A declaration as YAML that a person can correct."""

import re
import textwrap
from collections.abc import Mapping

from cluster.declaration import Node
from cluster.text import printable
from validation.declare.whole import Result

_WIDTH = 110

# What YAML takes for text without quotes, and for nothing else.
_TEXT = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_NO_TEXT = re.compile(r"y|n|yes|no|on|off|true|false|null", re.IGNORECASE)

HEAD = """\
What Slurm {version} says of the cluster {cluster}, by `python -m validation.declare --from-slurm`.

Read this, correct it, and prove the cluster against it:

    python -m validation.run --here --declaration {file}

`seen` names values that were read off a node: it has them, whether it should or not. `assumed`
names values that nobody knows. A run repeats both in its notes; remove the words once you have
checked them.
"""


def render(result: Result, version: str, file: str) -> str:
    """The declaration as YAML that a person can correct. `declaration.load` reads it."""
    whole = result.declaration
    head = HEAD.format(version=version or "", cluster=whole.cluster, file=file)
    lines = ["---", *(f"# {line}".rstrip() for line in head.splitlines()), "schema: 1"]
    lines += [f"cluster: {_text(whole.cluster)}"]
    for name in ("login", "controller"):
        lines.append(f"{name}: [{', '.join(map(_text, getattr(whole, name)))}]")
    lines += [f"python: {_text(whole.python)}  # on the nodes; trainings need torch in it"]
    wishes = {
        name: value
        for name in ("account", "qos", "reservation", "constraint")
        if (value := getattr(whole.submission, name))
    }
    if wishes:
        lines.append(f"submission: {{{_pairs(wishes)}}}")
    lines.append("partitions:")
    for partition in whole.partitions:
        default = "true" if partition.default else "false"
        lines += [f"  - name: {_text(partition.name)}", f"    default: {default}"]
        names = textwrap.wrap(f"[{', '.join(map(_text, partition.nodes))}]", _WIDTH)
        lines += [f"    nodes: {names[0]}", *(f"            {rest}" for rest in names[1:])]
    lines.append("nodes:")
    for item in result.kinds:
        for comment in item.comments:
            lines += [f"  # {line}" for line in textwrap.wrap(printable(comment), _WIDTH)]
        lines += [f"  - {_node(node)}" for node in item.nodes]
    if result.left_out:
        lines.append("# Left out:")
        for sentence in result.left_out:
            lines += [f"#   {line}" for line in textwrap.wrap(printable(sentence), _WIDTH)]
    return "\n".join(lines) + "\n"


def _node(node: Node) -> str:
    gpus: dict[str, object] = {"model": node.gpus.model, "count": node.gpus.count}
    parts = [_pairs({"name": node.name, "cpus": node.cpus, "memory_mb": node.memory_mb})]
    inner = [_pairs(gpus)]
    if node.gpus.mig:
        inner.append(f"mig: {{{_pairs(dict(node.gpus.mig))}}}")
    if node.gpus.gres:
        inner.append(_pairs({"gres": node.gpus.gres}))
    parts += [f"gpus: {{{', '.join(inner)}}}", _pairs({"fabric": node.fabric})]
    for name in ("without", "seen", "assumed"):
        if words := getattr(node, name):
            parts.append(f"{name}: [{', '.join(words)}]")
    return f"{{{', '.join(parts)}}}"


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{_text(key)}: {_text(value)}" for key, value in values.items())


def _text(value: object) -> str:
    """A scalar; a text in quotes where YAML would take it for something else."""
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if _TEXT.fullmatch(text) and not _NO_TEXT.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
