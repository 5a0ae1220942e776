"""What was measured, and what it proves by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from validation.localise.topology import Topology

Pair = tuple[str, str]
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Seen:
    """Nodes that ran together: a pair, or a larger group of a ramp.

    ok     False: it failed, or was slow. None: it did not run or gave no answer, and proves
           nothing. Say None where a pair was asked for: left out, it is asked for again
    round  counted from 1
    """

    nodes: tuple[str, ...]
    ok: bool | None
    round: int


@dataclass(frozen=True, slots=True)
class Side:
    """A declared group with nodes inside and outside, among those that are looked at.

    labels    as "switch leaf1"; more than one where groups have the same nodes
    inside    its nodes
    boundary  between inside and outside: a number that two groups share if there is nothing else
    """

    labels: tuple[str, ...]
    inside: frozenset[str]
    boundary: int


@dataclass(slots=True)
class Evidence:
    """What is known of nodes, pairs and boundaries.

    nodes    all that are looked at, in order, without the same one twice
    sides    the declared groups
    paths    each node's groups by level, as indices of `sides`; NOWHERE where it is in none
    good     nodes that ran well with another: a bad node does with none
    failed   pairs that failed, and the round
    tried    partners of each node, whatever came of it
    crossed  boundaries that nodes on both sides of ran well across
    rounds   how many there were
    """

    nodes: tuple[str, ...]
    sides: tuple[Side, ...]
    paths: Mapping[str, tuple[int, ...]]
    good: set[str] = field(default_factory=set)
    failed: dict[Pair, int] = field(default_factory=dict)
    tried: dict[str, set[str]] = field(default_factory=dict)
    crossed: set[int] = field(default_factory=set)
    rounds: int = 0

    def between(self, one: str, other: str) -> set[int]:
        """The boundaries between two nodes."""
        if self.paths[one] == self.paths[other]:
            return set()
        return {
            self.sides[side].boundary
            for ours, theirs in zip(self.paths[one], self.paths[other], strict=True)
            if ours != theirs
            for side in (ours, theirs)
            if side != NOWHERE
        }

    def in_doubt(self, one: str, other: str) -> set[int]:
        """The boundaries between two nodes that nothing is known to have crossed."""
        return self.between(one, other) - self.crossed

    def passable(self, side: int) -> bool:
        """Whether something is known to have crossed a group's boundary, or there is none."""
        return side == NOWHERE or self.sides[side].boundary in self.crossed

    def proven(self) -> list[Pair]:
        """Failed pairs both of whose nodes are good."""
        return [pair for pair in self.failed if pair[0] in self.good and pair[1] in self.good]


def gather(nodes: Sequence[str], topology: Topology, seen: Iterable[Seen]) -> Evidence:
    """Evidence of nodes, and of whoever else was measured with them (referees)."""
    seen = tuple(seen)
    everyone = tuple(dict.fromkeys(chain(nodes, *(one.nodes for one in seen))))
    evidence = Evidence(everyone, *_groups(everyone, topology))
    for one in seen:
        evidence.rounds = max(evidence.rounds, one.round)
        members = tuple(dict.fromkeys(one.nodes))
        if len(members) == 2:
            evidence.tried.setdefault(members[0], set()).add(members[1])
            evidence.tried.setdefault(members[1], set()).add(members[0])
        if one.ok and len(members) > 1:
            evidence.good.update(members)
            for other in members[1:]:
                evidence.crossed |= evidence.between(members[0], other)
        elif one.ok is False and len(members) == 2:
            evidence.failed[(members[0], members[1])] = one.round
    return evidence


def _groups(
    nodes: Sequence[str], topology: Topology
) -> tuple[tuple[Side, ...], dict[str, tuple[int, ...]]]:
    """Groups among nodes; a declared group of one node is that node, and has no boundary."""
    present = frozenset(nodes)
    labels: dict[frozenset[str], list[str]] = {}
    numbers: dict[frozenset[str], int] = {}
    columns: list[dict[str, int]] = []
    for level in topology.levels:
        column: dict[str, int] = {}
        for name, members in level.groups.items():
            inside = present.intersection(members)
            if len(members) > 1 and inside and len(inside) < len(present):
                labels.setdefault(inside, []).append(f"{level.name} {name}")
                column |= dict.fromkeys(inside, numbers.setdefault(inside, len(numbers)))
        columns.append(column)
    sizes = {len(inside) for inside in labels}
    sides = tuple(
        Side(tuple(names), inside, min(numbers[inside], _opposite(inside, present, numbers, sizes)))
        for inside, names in labels.items()
    )
    by_level = [[column.get(node, NOWHERE) for node in nodes] for column in columns]
    paths = zip(*by_level, strict=True) if columns else ((),) * len(nodes)
    return sides, dict(zip(nodes, paths, strict=True))


def _opposite(
    inside: frozenset[str],
    present: frozenset[str],
    numbers: Mapping[frozenset[str], int],
    sizes: Collection[int],
) -> int:
    """The number of the group of all other nodes; the group's own where there is none."""
    if len(present) - len(inside) not in sizes:  # spares thousands of large sets
        return numbers[inside]
    return numbers.get(present - inside, numbers[inside])
