"""The same pairs once for each HCA: is it a node, one of its HCAs, or a whole rail?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from validation.localise.findings import Findings, Node


@dataclass(frozen=True, slots=True)
class Hca:
    """One HCA of a node that is good over others."""

    node: str
    rail: str

    @property
    def sentence(self) -> str:
        return (
            f"{self.rail} of {self.node} is at fault: it failed with every partner, and the node's "
            "other rails are good."
        )


@dataclass(frozen=True, slots=True)
class Rails:
    """What several rails came to.

    nodes  at fault over every rail
    hcas   at fault, of nodes that are good over another rail
    lost   rails over which no pair ran well, while pairs did over another
    rest   what else was found over a rail
    """

    nodes: tuple[Node, ...]
    hcas: tuple[Hca, ...]
    lost: tuple[str, ...]
    rest: Mapping[str, Findings]

    @property
    def clear(self) -> bool:
        return not self.sentences

    @property
    def sentences(self) -> tuple[str, ...]:
        rails = [
            f"The rail {rail} is at fault: no pair of nodes ran well over it, and pairs did over "
            "others."
            for rail in self.lost
        ]
        return (
            *rails,
            *(node.sentence for node in self.nodes),
            *(hca.sentence for hca in self.hcas),
            *(
                f"Over {rail}: {sentence}"
                for rail, findings in self.rest.items()
                for sentence in findings.sentences
            ),
        )


def by_rail(findings: Mapping[str, Findings]) -> Rails:
    """Puts together what `conclude` says of each rail, by the rail's name, such as "mlx5_3".

    Raises ValueError for no rail: that would be clear without a measurement.
    """
    if not findings:
        raise ValueError("no rail was measured")
    running = {rail: frozenset(found.good) for rail, found in findings.items()}
    somewhere = frozenset().union(*running.values())
    lost = tuple(rail for rail, good in running.items() if not good and somewhere)
    rest: dict[str, Findings] = {}
    nodes: dict[str, list[Node]] = {}
    hcas: list[Hca] = []
    for rail, found in findings.items():
        if rail in lost:
            continue
        other: list[Node] = []
        for node in found.nodes:
            if node.name in somewhere:
                hcas.append(Hca(node.name, rail))
            else:
                nodes.setdefault(node.name, []).append(node)
                other.append(node)
        rest[rail] = replace(found, nodes=tuple(other))
    measured = len(findings) - len(lost)
    everywhere = {name: found for name, found in nodes.items() if len(found) == measured}
    rest = {
        rail: replace(found, nodes=tuple(n for n in found.nodes if n.name not in everywhere))
        for rail, found in rest.items()
    }
    return Rails(
        tuple(found[0] for found in everywhere.values()),
        tuple(hcas),
        lost,
        {rail: found for rail, found in rest.items() if not found.clear},
    )
