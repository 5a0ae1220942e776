"""A declaration out of what Slurm says of a cluster, and out of one look at each kind of node.

Pure functions of `validation/declare.py`. Slurm is taken at its word for names, CPUs, memory, GRES
and partitions: somebody has declared these there. What it does not know, such as the model of a GPU
or the fabric, is read off a node (`seen`) or assumed, and the declaration says so until somebody
has confirmed it: a node that is looked at tells what it has, not what it should have.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster import contract, mig
from cluster.declaration import (
    Declaration,
    Gpus,
    Node,
    Partition,
    Submission,
    is_name,
)
from cluster.hostlist import compress
from cluster.slurm.scontrol import SlurmConfig, SlurmNode, SlurmPartition
from cluster.text import printable
from validation import local, thresholds
from validation.checks import infiniband
from validation.checks.document import Document, Fields
from validation.checks.slurm_state import gpus_of

UNSAID_FABRIC = "ethernet"
_WIDTH = 110
_PROFILE = re.compile(r"(?:^|_)(\d+g\.\d+gb(?:\+[a-z.]+)*)$")


class Undeclarable(Exception):
    """Why nodes cannot be written into a declaration: the end of a sentence."""


# --- what is known ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """What a node showed of itself."""

    node: str
    python: str
    torch: str | None
    cpus: int
    memory_mb: int
    names: tuple[str, ...]  # of the GPUs, as NVML has them
    nvml: str | None  # why NVML does not answer
    ports: tuple[tuple[str, str, str], ...]  # link layer, state and rate, as the kernel writes them
    dcgmi: bool
    shared: tuple[str, ...]


def look_of(node: str, document: Document) -> Look:
    """Out of the payload's answer. Raises Unusable for another document."""
    measured = document.measured
    inside = measured.inner("node")
    ports = measured.inner("infiniband")
    items = ports.items("ports") if ports.has("ports") else ()
    return Look(
        node,
        document.proof.python or "",
        inside.maybe_text("torch"),
        inside.whole("cpus"),
        inside.whole("memory_mb"),
        tuple(printable(gpu.text("name"), 80) for gpu in inside.items("gpus")),
        inside.maybe_text("nvml"),
        tuple(map(_port, items)),
        measured.has("dcgmi"),
        tuple(f"{i.text('path')} ({i.text('type')})" for i in measured.items("shared")),
    )


def _port(item: Fields) -> tuple[str, str, str]:
    words = (item.maybe_text(name) or "" for name in ("link_layer", "state", "rate"))
    layer, state, rate = (printable(word, 40) for word in words)
    return layer, state, rate


@dataclass(frozen=True, slots=True)
class Kind:
    """Nodes of which Slurm says the same, but for their names and states."""

    nodes: tuple[SlurmNode, ...]

    @property
    def names(self) -> str:
        return compress(node.name for node in self.nodes)

    @property
    def gres(self) -> Counter[str]:
        """How many GPUs of each type; "" for those without one."""
        return +gpus_of(self.nodes[0].gres)

    @property
    def to_look_at(self) -> SlurmNode | None:
        """The node to be asked: one without jobs, if there is one; None where all are away."""
        awake = [node for node in self.nodes if node.awake]
        return min(awake, key=lambda node: "IDLE" not in node.words, default=None)


def kinds(nodes: Iterable[SlurmNode]) -> list[Kind]:
    alike: dict[object, list[SlurmNode]] = {}
    for node in nodes:
        gres = tuple(sorted(gpus_of(node.gres).items()))
        alike.setdefault((node.cpus, node.memory_mb, gres, node.features), []).append(node)
    return [Kind(tuple(members)) for members in alike.values()]


_NO_GPU = Gpus("none", 0)


# --- GPUs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guess:
    """A part of a node's declaration: what was seen, what was assumed, and what to look at."""

    gpus: Gpus = _NO_GPU
    fabric: str = UNSAID_FABRIC
    seen: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    comments: tuple[str, ...] = ()


def request_of(gres: Mapping[str, int]) -> str:
    """How Slurm is asked for all of them."""
    return ",".join(f"gpu:{kind}:{n}" if kind else f"gpu:{n}" for kind, n in gres.items())


def guess_gpus(gres: Counter[str], look: Look | None) -> Guess:
    """The GPUs of a kind. Raises Undeclarable for what a declaration has no words for."""
    total = gres.total()
    names = Counter(look.names) if look else Counter[str]()
    if not total:
        hidden = f"the node shows {_counted(names)}, and Slurm has no Gres for it"
        return Guess(comments=(hidden,) if names else ())
    models = {local.model_of(name) for name in names}
    if len(models) > 1:
        raise Undeclarable(f"has GPUs of more than one model ({_counted(names)})")
    profiles = {kind: _PROFILE.search(kind) for kind in gres}
    if any(profiles.values()):
        return _instances(gres, names, models)
    guess = _whole(gres, models)
    seen = names.total()
    if look and seen != total:
        why = f" ({printable(look.nvml, 80)})" if look.nvml else ""
        wrong = f"Slurm has {total} GPUs, NVML on the node lists {seen}{why}"
        guess = replace(guess, comments=(*guess.comments, wrong))
    return guess


def _whole(gres: Counter[str], models: set[str]) -> Guess:
    total = gres.total()
    seen: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    if models:
        model, seen = models.pop(), ("model",)
    elif len(gres) > 1:
        raise Undeclarable(f"has GPUs of more than one type ({request_of(gres)})")
    else:
        (kind,) = gres
        named = _model_named(kind)
        model = named or re.sub(r"[^A-Za-z0-9_.-]+", "-", kind) or "unknown"
        assumed = () if named else ("model",)
    gpus = Gpus(model, total)
    request = request_of(gres)
    gpus = gpus if gpus.request == request else replace(gpus, gres=request)
    if not assumed:
        return Guess(gpus, seen=seen)
    known = [name for name in thresholds.shipped_models() if name != "cpu"]
    near = [name for name in known if name.startswith(model)] or known
    comment = f"no thresholds are known for a model {model}; there are {', '.join(near)}"
    return Guess(gpus, assumed=assumed, comments=(comment,))


def _instances(gres: Counter[str], names: Counter[str], models: set[str]) -> Guess:
    """GPUs that are cut into instances of MIG; Slurm counts these, and not the GPUs."""
    whole = [kind for kind in gres if not _PROFILE.search(kind)]
    if whole:
        raise Undeclarable(f"has whole GPUs beside instances of MIG ({request_of(gres)})")
    count = names.total()
    if not count:
        raise Undeclarable(
            f"has instances of MIG ({request_of(gres)}), and of how many GPUs only a look tells"
        )
    each: Counter[str] = Counter()
    for kind, number in gres.items():
        match = _PROFILE.search(kind)
        assert match is not None  # none is whole
        if number % count or not mig.PROFILE.fullmatch(match[1]):
            raise Undeclarable(f"has {number} instances {kind} on {count} GPUs, unlike each other")
        each[match[1]] += number // count
    gpus = Gpus(models.pop(), count, mig=tuple(sorted(each.items())), gres=request_of(gres))
    return Guess(gpus, seen=("model", "mig"))


def _model_named(kind: str) -> str | None:
    """The model that a GRES type names: by our word, or by NVML's as AutoDetect writes it."""
    plain = _plain(kind)
    for model in thresholds.shipped_models():
        known = thresholds.load(model).model
        names = known.nvml_names if known else ()
        if kind == model or plain in map(_plain, names):
            return model
    return kind if kind == "virtual" else None


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{number} × {name}" for name, number in names.items())


# --- the fabric ------------------------------------------------------------------------------


def guess_fabric(look: Look | None) -> Guess:
    """The fabric by the ports that are up: InfiniBand before RoCE, the lowest rate of several."""
    if look is None:
        return Guess(assumed=("fabric",))
    up = [(layer, rate) for layer, state, rate in look.ports if state.endswith("ACTIVE")]
    down = len(look.ports) - len(up)
    comments: tuple[str, ...] = (
        (f"{down} of {len(look.ports)} RDMA ports are not up",) if down else ()
    )
    for layer in (infiniband.INFINIBAND, infiniband.ETHERNET):
        rates = Counter(rate for other, rate in up if other == layer)
        if not rates:
            continue
        if len(rates) > 1:
            several = f"ports of several rates ({_counted(rates)}): name those meant in NCCL_IB_HCA"
            comments += (several,)
        words = {_word(layer, rate) for rate in rates}
        known = [word for word in contract.load().fabrics if word in words]
        if known:
            lowest = min(known, key=_rate)
            return Guess(fabric=lowest, seen=("fabric",), comments=comments)
        comments += (f"no word for {layer} of {', '.join(rates)}",)
    return Guess(seen=("fabric",), comments=comments)


def _rate(word: str) -> int:
    fabric = infiniband.declared(word)
    return (fabric and fabric.rate) or 0


def _word(layer: str, rate: str) -> str:
    """The contract's word for a port.

    >>> _word("InfiniBand", "200 Gb/sec (2X NDR)"), _word("Ethernet", "100 Gb/sec (4X EDR)")
    ('ib_ndr200', 'roce_100')
    """
    match = re.match(r"(\d+)[\d.]* Gb/sec(?: \(\dX (\w+)\))?", rate)
    if match is None:
        return ""
    if layer == infiniband.ETHERNET:
        return f"roce_{match[1]}"
    return f"ib_{(match[2] or '').lower()}{match[1]}"


# --- the whole -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Described:
    """A kind as it is declared, and what a person should read beside it."""

    kind: Kind
    nodes: tuple[Node, ...]
    comments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    declaration: Declaration
    kinds: tuple[Described, ...]
    left_out: tuple[str, ...]  # sentences


def declare(
    config: SlurmConfig,
    nodes: Sequence[SlurmNode],
    partitions: Sequence[SlurmPartition],
    looks: Mapping[str, Look | str],
    login: str,
    python: str,
    submission: Submission,
) -> Result:
    """The cluster as Slurm has it. `looks` has by a node's name what was seen, or why nothing was.

    Raises Undeclarable where no node is left.
    """
    usable, left_out = housed(nodes, partitions)
    described = []
    for kind in kinds(usable):
        try:
            described.append(_describe(kind, looks, config))
        except Undeclarable as why:
            left_out.append(f"{kind.names} {why}")
    declared = {node.name: node for item in described for node in item.nodes}
    if not declared:
        raise Undeclarable(f"no node can be declared: {'; '.join(left_out) or 'Slurm has none'}")
    ordered = sorted(partitions, key=lambda item: not item.open_)
    kept = tuple(
        Partition(item.name, names, item.default)
        for item in ordered
        if item.up and is_name(item.name)
        and (names := tuple(name for name in item.nodes if name in declared))
    )  # fmt: skip
    cluster = config.cluster if is_name(config.cluster) else "cluster"
    controllers = tuple(filter(is_name, config.controllers))
    logins = (login,) if is_name(login) else ()
    whole = Declaration(cluster, logins, controllers, python, kept, declared, submission)
    return Result(whole, tuple(described), tuple(left_out))


def housed(
    nodes: Sequence[SlurmNode], partitions: Sequence[SlurmPartition]
) -> tuple[list[SlurmNode], list[str]]:
    """The nodes that may be declared, and sentences about the others."""
    homes = {name for item in partitions if item.up and is_name(item.name) for name in item.nodes}
    usable, left_out = [], []
    for node in nodes:
        if not node.there:
            left_out.append(f"{node.name} is {'+'.join(sorted(node.words))}")
        elif not is_name(node.name):
            left_out.append(f"{node.name} has a name that a declaration cannot have")
        elif node.name not in homes:
            left_out.append(f"{node.name} is in no partition that is up")
        elif not node.cpus or not node.memory_mb:
            left_out.append(f"{node.name} has neither CPUs nor memory in Slurm")
        else:
            usable.append(node)
    return usable, left_out


def _describe(kind: Kind, looks: Mapping[str, Look | str], config: SlurmConfig) -> Described:
    mine = [looks[node.name] for node in kind.nodes if node.name in looks]
    look = next((item for item in mine if isinstance(item, Look)), None)
    gpus, fabric = guess_gpus(kind.gres, look), guess_fabric(look)
    first = kind.nodes[0]
    without = ["dcgm"] if look and gpus.gpus.count and not look.dcgmi else []
    without += ["munge"] if config.auth and not config.auth.endswith("munge") else []
    nodes = tuple(
        Node(
            node.name,
            node.cpus,
            node.memory_mb,
            gpus.gpus,
            fabric.fabric,
            without=tuple(without),
            seen=(*gpus.seen, *fabric.seen),
            assumed=(*gpus.assumed, *fabric.assumed),
        )
        for node in kind.nodes
    )
    features = f", features {', '.join(first.features)}" if first.features else ""
    title = f"{kind.names}: {first.gres or 'no Gres'}{features}"
    failed = [item for item in mine if isinstance(item, str)]
    told = _seen(look) if look else [f"not looked at: {failed[0]}"] if failed else []
    doubts = [*gpus.comments, *fabric.comments, *_unlike(first, look)]
    return Described(kind, nodes, (title, *told, *(f"check this: {text}" for text in doubts)))


def _seen(look: Look) -> list[str]:
    up = Counter(f"{layer} {rate}" for layer, state, rate in look.ports if "ACTIVE" in state)
    parts = [
        f"{look.cpus} CPUs",
        f"{look.memory_mb} MiB",
        _counted(Counter(look.names)) or "no GPU in NVML",
        _counted(up) or "no RDMA port that is up",
        f"Python {look.python}",
        f"torch {look.torch}" if look.torch else "no torch in this Python",
    ]
    lines = [f"seen on {look.node}: {', '.join(parts)}"]
    if look.shared:
        shared = ", ".join(printable(item, 80) for item in look.shared[:8])
        lines.append(f"file servers' mounts, for shared_filesystems: {shared}")
    return lines


def _unlike(node: SlurmNode, look: Look | None) -> Iterator[str]:
    if look is not None and look.cpus != node.cpus:
        yield f"Slurm has {node.cpus} CPUs, the node has {look.cpus}"
    if look is not None and look.memory_mb < node.memory_mb:
        yield f"Slurm has {node.memory_mb} MiB of memory, the node has {look.memory_mb}"


def doubts(nodes: Iterable[Node]) -> list[str]:
    """Notes of a run about values that nobody has declared; none where everything is confirmed."""
    notes = []
    for what, words in (("seen on the nodes, not declared", "seen"), ("assumed", "assumed")):
        holders: dict[str, list[str]] = {}
        for node in nodes:
            for word in getattr(node, words):
                holders.setdefault(word, []).append(node.name)
        notes += [f"the {word} of {compress(names)} is {what}" for word, names in holders.items()]
    return notes


# --- as text ---------------------------------------------------------------------------------

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
