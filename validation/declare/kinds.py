"""Nodes of which Slurm says the same, and what a look at one of them showed."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from cluster.hostlist import compress
from cluster.slurm.scontrol import SlurmNode
from cluster.text import printable
from validation.checks.document import Document, Fields
from validation.checks.slurm_state import gpus_of


class Undeclarable(Exception):
    """Why nodes cannot be written into a declaration: the end of a sentence."""


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
