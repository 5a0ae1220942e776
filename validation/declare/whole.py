"""A declaration out of what Slurm says of a cluster, and out of one look at each kind of node.

Slurm is taken at its word for names, CPUs, memory, GRES and partitions: somebody has declared these
there. What it does not know, such as the model of a GPU or the fabric, is read off a node (`seen`)
or assumed, and the declaration says so until somebody has confirmed it: a node that is looked at
tells what it has, not what it should have.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cluster.declaration import Declaration, Node, Partition, Submission, is_name
from cluster.hostlist import compress
from cluster.slurm.scontrol import SlurmConfig, SlurmNode, SlurmPartition
from cluster.text import printable
from validation.declare.guess import counted, guess_fabric, guess_gpus
from validation.declare.kinds import Kind, Look, Undeclarable, kinds


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
        counted(Counter(look.names)) or "no GPU in NVML",
        counted(up) or "no RDMA port that is up",
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
