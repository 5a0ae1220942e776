"""The same pairs once for each HCA: is it a node, one of its HCAs, or a whole rail?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from validation.localise.evidence import Seen
from validation.localise.findings import Findings, Node
from validation.localise.topology import Topology
from validation.localise.verdict import conclude

FEWEST = 4  # nodes that a rail must fail for


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


def by_rail(nodes: Sequence[str], topology: Topology, seen: Mapping[str, Iterable[Seen]]) -> Rails:
    """What was seen over each rail, by the rail's name, such as "mlx5_3".

    Raises ValueError for no rail: nothing that was not measured is clear.
    """
    if not seen:
        raise ValueError("no rail was measured")
    pairs = {rail: tuple(one) for rail, one in seen.items()}
    findings = {rail: conclude(nodes, topology, one) for rail, one in pairs.items()}
    good = frozenset(node for found in findings.values() for node in found.good)
    lost = tuple(rail for rail in findings if _lost(findings[rail], pairs[rail], good))
    running = {rail: found for rail, found in findings.items() if rail not in lost}
    named = Counter(node.name for found in running.values() for node in found.nodes)
    everywhere = {name for name, count in named.items() if count == len(running)}
    hcas = [
        Hca(node.name, rail)
        for rail, found in running.items()
        for node in found.nodes
        if node.name in good
    ]
    told = {(hca.rail, hca.node) for hca in hcas}
    rest = {
        rail: replace(
            found,
            nodes=tuple(
                node
                for node in found.nodes
                if node.name not in everywhere and (rail, node.name) not in told
            ),
        )
        for rail, found in running.items()
    }
    first = next(iter(running.values()), Findings())
    return Rails(
        tuple(node for node in first.nodes if node.name in everywhere),
        tuple(hcas),
        lost,
        {rail: found for rail, found in rest.items() if not found.clear},
    )


def _lost(found: Findings, seen: Sequence[Seen], good: frozenset[str]) -> bool:
    """Whether all nodes that are good over another rail failed over this one, and not just a few:
    of two, one HCA is enough for that."""
    failed = {node for one in seen if one.ok is False for node in one.nodes}
    return not found.good and len(good) >= FEWEST and good <= failed
