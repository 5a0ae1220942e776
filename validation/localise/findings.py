"""What the measurements came to, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cluster.hostlist import compress


@dataclass(frozen=True, slots=True)
class Node:
    """A node that failed with every partner.

    partners  the good ones among them, at least two
    """

    name: str
    partners: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return (
            f"{self.name} is at fault: it failed with every partner, with {len(self.partners)} "
            f"that are good with others: {compress(self.partners)}."
        )


@dataclass(frozen=True, slots=True)
class Link:
    """What is between two nodes that are good with others."""

    nodes: tuple[str, str]

    @property
    def sentence(self) -> str:
        one, other = self.nodes
        return (
            f"The link between {one} and {other} is at fault: they fail with each other, and both "
            "are good with others."
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Declared groups that nothing gets out of, or in which nothing runs.

    labels  as ("switch leaf1",): more than one where nothing tells them apart, because they have
            the same nodes, or because nothing crosses between any of them
    nodes   of the groups
    pairs   pairs across the boundary that failed although both nodes are good
    inside  whether pairs inside are good, or inside its parts
    parts   groups none of which gets to another: what is above them is at fault
    """

    labels: tuple[str, ...]
    nodes: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = ()
    inside: bool = False
    parts: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        names = " and ".join(self.labels)
        if not self.inside:
            return (
                f"{names} is at fault as a whole: each of its {len(self.nodes)} nodes "
                f"({compress(self.nodes)}) failed with every partner, inside as well."
            )
        if not self.parts:
            return (
                f"What leads out of {names} is at fault: all {len(self.pairs)} pairs across its "
                "boundary failed, and pairs inside are good."
            )
        above = f"{names}, which joins" if self.labels != self.parts else "What joins"
        return (
            f"{above} {', '.join(self.parts)}, is at fault: none of them gets to another, in "
            f"{len(self.pairs)} pairs, and pairs inside are good."
        )


@dataclass(frozen=True, slots=True)
class Undecided:
    """What is not known to be good, and cannot be told apart from others.

    nodes   that may be at fault
    labels  groups that may be at fault
    reason  one sentence
    """

    nodes: tuple[str, ...]
    labels: tuple[str, ...]
    reason: str

    @property
    def sentence(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that is wrong or not known to be right. Nothing of both: `clear`.

    good  nodes that ran well with another
    """

    nodes: tuple[Node, ...] = ()
    links: tuple[Link, ...] = ()
    groups: tuple[Group, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    good: tuple[str, ...] = ()

    @property
    def clear(self) -> bool:
        """Whether every node ran well with another, and nothing failed."""
        return not (self.nodes or self.links or self.groups or self.undecided)

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(self._sentences())

    def _sentences(self) -> Iterator[str]:
        for kind in (self.groups, self.nodes, self.links, self.undecided):
            for finding in kind:
                yield finding.sentence
