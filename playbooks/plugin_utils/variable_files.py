"""Files of an inventory and of the variables beside it, read before Ansible reads variables.

Ansible names no file for a YAML error in group_vars, takes the last of two equal keys, waits for
ever for a FIFO, and expands what aliases multiply. Each of these is one sentence here, with its
file and line. Nothing is evaluated: YAML is composed to nodes, whose aliases share one node.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml

from playbooks.plugin_utils import vaulted

# Ansible's own: what ansible.builtin.host_group_vars takes for a file of variables.
SUFFIXES = ("", ".yml", ".yaml", ".json")
YAML = (".yml", ".yaml")
FOLDERS = ("group_vars", "host_vars")
# A thousand nodes with forty variables each have 10^5; an alias bomb has 10^9 in a kilobyte.
HOST_RANGE = re.compile(r"\[([0-9]+):([0-9]+)\]")
# As Slurm writes one, where a host is named: at the beginning of a line, in YAML or INI.
SLURM_RANGE = re.compile(r"^[ '\"-]*([\w.-]*)\[(\d+)-(\d+)\]([\w.-]*)", re.MULTILINE)
OCTAL = re.compile(r"0[0-7]+")
TAGS = {
    *("!vault", "!vault-encrypted", "!unsafe"),
    *(
        f"tag:yaml.org,2002:{kind}"
        for kind in ("map", "seq", "str", "int", "float", "bool", "null")
    ),
    *(f"tag:yaml.org,2002:{kind}" for kind in ("merge", "timestamp", "value", "binary", "set")),
    *(f"tag:yaml.org,2002:{kind}" for kind in ("omap", "pairs")),
}
MODES = ("mode", "umask")  # of files, which are octal
MOST_NODES = 1_000_000
MOST_BYTES = 32 << 20

Open = Callable[[Path], None]  # decrypts a file, or raises ValueError with why it cannot

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def files(sources: Sequence[str]) -> list[Path]:
    """The inventories' own YAML files, then their files of variables, each once."""
    paths = [path for path in map(Path, sources) if path.exists()]
    own = [file for path in paths for file in inventory_files(path)]
    folders = dict.fromkeys(
        (path if path.is_dir() else path.parent) / name for path in paths for name in FOLDERS
    )
    return list(dict.fromkeys([*own, *(file for folder in folders for file in _below(folder))]))


def inventory_files(source: Path) -> Iterator[Path]:
    """Ansible has parsed these; what it takes the last of is still to be found in them."""
    for path in [source] if source.is_file() else sorted(source.iterdir()):
        if path.suffix in YAML and path.is_file() and not path.name.startswith("."):
            yield path


class Unread(SystemExit):
    """Ends a run, as Ansible would for what it cannot parse."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__(4)
        self.sentences = sentences


def inventory_problems(path: Path) -> list[str]:
    """Why none of Ansible's plugins reads an inventory, where that can be said."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    ranges = [
        f"{path}:{text.count(chr(10), 0, match.start(1)) + 1}: {match[0].strip()} is no range of "
        f"Ansible's, which has a colon; write {match[1]}[{match[2]}:{match[3]}]{match[4]}"
        for match in SLURM_RANGE.finditer(text)
    ]
    is_yaml = path.suffix in YAML or text.startswith("---")
    return ranges or (problems([path], lambda _: None) if is_yaml else [])


def _below(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        # Ansible skips hidden files and backups.
        if path.name.startswith(".") or path.name.endswith("~"):
            continue
        if path.is_dir():
            yield from _below(path)
        elif path.suffix in SUFFIXES:
            yield path


def problems(paths: Sequence[Path], decrypt: Open) -> list[str]:
    """One sentence for each file that cannot be read as it was meant, in their order."""
    return [sentence for path in paths for sentence in _problems(path, decrypt)]


def _problems(path: Path, decrypt: Open) -> Iterator[str]:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            yield f"{path}: is no regular file; remove it, or write the variables into a file"
            return
        if status.st_size > MOST_BYTES:
            yield f"{path}: has {status.st_size >> 20} MiB, which is no file of variables"
            return
        content = path.read_bytes()
    except OSError as error:
        yield f"{path}: cannot be read: {error.strerror}"
        return
    if content.startswith(vaulted.MARK):
        try:
            decrypt(path)
        except ValueError as error:
            yield f"{path}: {error}"
        return
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        yield f"{path}:{line}: has a byte that is not UTF-8; save the file as UTF-8"
        return
    yield from (f"{path}:{sentence}" for sentence in text_problems(text))


def text_problems(text: str) -> Iterator[str]:
    """`LINE: sentence` for each thing in a text of variables that YAML or Ansible misreads."""
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        yield f"{line}: has a NUL character; remove it"
        return
    try:
        documents = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        yield _yaml_error(text, error)
        return
    except yaml.YAMLError as error:
        yield f"1: {str(error).splitlines()[0]}"
        return
    except RecursionError:
        yield "1: is nested too deeply"
        return
    if len(documents) > 1:
        line = documents[1].start_mark.line + 1
        yield f"{line}: begins a second YAML document; a file of variables has one, so remove `---`"
    elif documents and (sentence := _root_problem(documents[0])):
        yield sentence
    elif documents:
        try:
            yield from _node_problems(documents[0])
        except RecursionError:
            yield "1: is nested too deeply"


def _yaml_error(text: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines()
    line = min(mark.line + 1 if mark else 1, len(lines))  # what never ends, ends after the last
    written = lines[line - 1]
    if "\t" in written[: len(written) - len(written.lstrip())] or "'\\t'" in str(error.problem):
        return f"{line}: is indented by a tab; YAML takes spaces only"
    begun = error.context_mark
    since = f", which begins in line {begun.line + 1}" if begun and begun.line + 1 != line else ""
    where = f" {error.context}{since}:" if error.context else ""
    return f"{line}: is no YAML:{where} {error.problem}"


def _root_problem(root: yaml.Node) -> str:
    if isinstance(root, yaml.MappingNode):
        return ""
    if isinstance(root, yaml.ScalarNode) and not root.value.strip():
        return ""  # an empty file, or one of comments
    line = root.start_mark.line + 1
    return f"{line}: has no variables; write them as `name: value`"


def _node_problems(root: yaml.Node) -> Iterator[str]:
    """Keys that are written twice, aliases that contain themselves, and what multiplies."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()
    sentences: list[str] = []

    def size(node: yaml.Node) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        if id(node) in open_nodes:
            sentences.append(f"{node.start_mark.line + 1}: contains itself by an alias")
            return 1
        open_nodes.add(id(node))
        if node.tag not in TAGS:
            tag = node.tag.removeprefix("tag:yaml.org,2002:").removeprefix("!")
            sentences.append(f"{node.start_mark.line + 1}: has the tag !{tag}, which is not read")
        total = 1
        if isinstance(node, yaml.MappingNode):
            sentences.extend(_duplicates(node))
            sentences.extend(_octals(node))
            sentences.extend(_backward_ranges(node))
            total += sum(size(key) + size(value) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            total += sum(size(item) for item in node.value)
        open_nodes.discard(id(node))
        sizes[id(node)] = total
        return total

    if isinstance(root, yaml.MappingNode):
        sentences += [
            f"{key.start_mark.line + 1}: sets `{key.value}`, which is no name; put it in quotes"
            for key, _ in root.value
            if key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")
        ]
    total = size(root)
    yield from sentences
    if total > MOST_NODES:
        yield f"1: its aliases stand for {total} values; write a list of that size without them"


def _octals(node: yaml.MappingNode) -> Iterator[str]:
    """Numbers with a leading zero: YAML reads 02001 as 1025, and no uid is meant so."""
    for key, value in node.value:
        if (
            isinstance(value, yaml.ScalarNode)
            and value.tag == "tag:yaml.org,2002:int"
            and OCTAL.fullmatch(value.value)
            and not str(key.value).endswith(MODES)
        ):
            plain = value.value.lstrip("0")
            yield (
                f"{value.start_mark.line + 1}: sets `{key.value}` to {value.value}, which YAML "
                f"reads as {int(value.value, 8)}; write {plain}, or put it in quotes"
            )


def _backward_ranges(node: yaml.MappingNode) -> Iterator[str]:
    """Ranges of hosts that Ansible takes for none, such as gpu[8:1]."""
    for key, _ in node.value:
        for low, high in HOST_RANGE.findall(str(key.value)):
            if int(low) > int(high):
                yield (
                    f"{key.start_mark.line + 1}: {key.value} runs backwards and names no host; "
                    f"write [{high}:{low}]"
                )


def _duplicates(node: yaml.MappingNode) -> Iterator[str]:
    first: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        line = key.start_mark.line + 1
        if key.value in first:
            yield (
                f"{line}: sets `{key.value}` again, after line {first[key.value]}; keep one of them"
            )
        first.setdefault(key.value, line)
