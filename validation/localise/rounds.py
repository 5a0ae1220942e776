"""Which nodes run together next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from validation.localise.evidence import NOWHERE, Evidence, Pair, Seen, gather
from validation.localise.topology import Topology

MOST_ROUNDS = 4  # the first, and three after it
CONFIRMED = 2  # known-good nodes that a node must fail with, after the first round
FEW = 6  # nodes up to which every round is filled, and small groups are looked through


def next_round(
    nodes: Sequence[str],
    topology: Topology,
    seen: Iterable[Seen],
    referees: Sequence[str] = (),
) -> tuple[Pair, ...]:
    """Disjoint pairs to run next, side by side; none when there is nothing more to learn.

    The first round pairs all nodes: most within the smallest declared groups, and two nodes of
    each group across its boundary, for each level of groups. The rounds after it pair

    - each suspect with a known-good node of its own, near it, until it has failed with two
    - a node that was not measured, such as the odd one of the first round, likewise
    - good nodes across each boundary that no pair is known to have crossed

    referees  idle nodes that are not under test: for suspects where no good node is known
    """
    seen = tuple(seen)
    if not seen:
        return tuple(_first(gather(nodes, topology, ())))
    evidence = gather((*nodes, *referees), topology, seen)
    if evidence.rounds >= MOST_ROUNDS:
        return ()
    return tuple(_Round(nodes, evidence, referees).pairs())


# --- the first round -----------------------------------------------------------------------------


def _first(evidence: Evidence) -> Iterator[Pair]:
    """From the smallest groups up: pairs inside each, and some of its nodes left for outside."""
    levels = len(evidence.paths[evidence.nodes[0]]) if evidence.nodes else 0
    waiting = list(evidence.nodes)
    for level in range(levels + 1):
        groups: dict[tuple[int, ...], dict[tuple[int, ...], list[str]]] = {}
        for node in waiting:
            path = evidence.paths[node]
            below = groups.setdefault(path[level:], {})
            below.setdefault(path[max(level - 1, 0) :], []).append(node)
        waiting = []
        for below in groups.values():
            outside, inside = _split(list(below.values()), last=level == levels)
            waiting += outside
            yield from zip(inside[::2], inside[1::2], strict=False)


def _split(below: Sequence[list[str]], *, last: bool) -> tuple[list[str], list[str]]:
    """Nodes for pairs across a group's boundary, and in the order of their pairs those within."""
    mixed = _mixed(below)
    count = len(mixed)
    if last:
        return [], mixed
    if count <= 2:
        return mixed, []
    crossing = 1 if count == 3 else 2 + count % 2
    return mixed[:crossing], mixed[crossing:]


def _mixed(below: Sequence[list[str]]) -> list[str]:
    """Nodes of groups, so that neighbours are of different ones and always of others.

    Of a1 a2, b1 b2, c1 c2, d1 d2 that is a1 b1, c1 d1, b2 c2, d2 a2.
    """
    mixed: list[str] = []
    for rank in range(max(map(len, below), default=0)):
        row = [nodes[rank] for nodes in below if rank < len(nodes)]
        shift = rank % len(row)
        mixed += row[shift:] + row[:shift]
    return mixed


# --- the others ----------------------------------------------------------------------------------


class _Round:
    """One round in the making: who is still free, and where the free good nodes are.

    near[level] has, by the groups from that level on, the good nodes that a node of these groups
    can be tested with: what lies between them below that level is known to work.
    """

    def __init__(self, nodes: Sequence[str], evidence: Evidence, referees: Sequence[str]) -> None:
        self.nodes, self.evidence, self.referees = nodes, evidence, referees
        self.used: set[str] = set()
        self.made: list[Pair] = []
        self.good = [node for node in reversed(evidence.nodes) if node in evidence.good]
        levels = len(evidence.paths[evidence.nodes[0]])
        self.near: list[dict[tuple[int, ...], list[str]]] = [{} for _ in range(levels + 1)]
        for node in self.good:
            path = evidence.paths[node]
            for level in range(levels + 1):
                if level and not evidence.passable(path[level - 1]):
                    break
                self.near[level].setdefault(path[level:], []).append(node)

    def pairs(self) -> list[Pair]:
        needy = self._needy()
        self._look_inside(needy)
        for node in needy:
            self._pair(node, self._near(node))
        self._cross()
        for node in needy:
            self._pair(node, self._any(node, needy))
        if self.made and len(self.nodes) <= FEW:
            for node in self.nodes:
                self._pair(node, self._untried(node, self.nodes))
        return self.made

    def _pair(self, node: str, partner: str | None) -> None:
        if partner is not None and node not in self.used:
            self.made.append((node, partner))
            self.used |= {node, partner}

    def _untried(self, node: str, others: Iterable[str]) -> str | None:
        """The first free one that the node was not paired with yet."""
        tried = self.evidence.tried.get(node, set())
        return next(
            (o for o in others if o not in self.used and o not in tried and o != node), None
        )

    def _needy(self) -> list[str]:
        """Nodes that are neither good nor known to fail with enough nodes that are."""
        failures = dict.fromkeys(self.nodes, 0)
        for pair, number in self.evidence.failed.items():
            for node, partner in (pair, pair[::-1]):
                if node in failures and number > 1 and partner in self.evidence.good:
                    failures[node] += 1
        return [
            node
            for node, failed in failures.items()
            if node not in self.evidence.good and failed < CONFIRMED
        ]

    def _look_inside(self, needy: Sequence[str]) -> None:
        """Pairs within groups in which nothing is good yet: is it the nodes or what is above?"""
        groups: dict[int, list[str]] = {}
        for node in needy:
            side = next((side for side in self.evidence.paths[node] if side != NOWHERE), NOWHERE)
            if not self.evidence.passable(side):
                groups.setdefault(side, []).append(node)
        for side, members in groups.items():
            inside = self.evidence.sides[side].inside
            again = self.evidence.rounds == 1 or len(inside) <= FEW
            if again and self.evidence.rounds < MOST_ROUNDS - 1 and not inside & self.evidence.good:
                for node in members:
                    self._pair(node, self._untried(node, members))

    def _near(self, node: str) -> str | None:
        """The nearest good node that is free."""
        path = self.evidence.paths[node]
        for level, near in enumerate(self.near):
            if found := self._take(node, near.get(path[level:], [])):
                return found
        return None

    def _take(
        self, node: str, places: list[str], without: frozenset[str] = frozenset()
    ) -> str | None:
        """The last of a list that is free, untried and not among others; used ones go away."""
        aside: list[str] = []
        found = None
        tried = self.evidence.tried.get(node, set())
        while places and found is None:
            last = places.pop()
            if last in self.used:
                continue
            aside.append(last)
            if last not in tried and last not in without and last != node:
                found = last
        places += reversed(aside)
        return found

    def _cross(self) -> None:
        """Good nodes across boundaries in doubt, until two pairs prove a boundary's fault."""
        doubts = {side.boundary for side in self.evidence.sides} - self.evidence.crossed
        proven = dict.fromkeys(doubts, 0)
        for one, other in self.evidence.proven():
            if len(doubt := self.evidence.in_doubt(one, other)) == 1:
                proven[next(iter(doubt))] += 1
        for number, side in enumerate(self.evidence.sides):
            if side.boundary in doubts:
                for _ in range(CONFIRMED - proven[side.boundary]):
                    self._cross_once(number)

    def _cross_once(self, number: int) -> None:
        inside = self.evidence.sides[number].inside
        free = [node for node in self.nodes_of(number) if node not in self.used]
        for node in free:
            path = self.evidence.paths[node]
            above = path.index(number) + 1
            for level in range(above, len(self.near)):
                if found := self._take(node, self.near[level].get(path[level:], []), inside):
                    self._pair(node, found)
                    return
        for node in free:
            if found := self._take(node, self.good, inside):
                self._pair(node, found)
                return

    def nodes_of(self, number: int) -> list[str]:
        """Good nodes of a group, first those with nothing else in doubt around them."""
        evidence = self.evidence
        good = [node for node in evidence.sides[number].inside if node in evidence.good]
        return sorted(
            good,
            key=lambda node: (
                sum(not evidence.passable(side) for side in evidence.paths[node]),
                node,
            ),
        )

    def _any(self, node: str, needy: Sequence[str]) -> str | None:
        """Whoever may tell something of a node that no good one is near to or left for."""
        return (
            self._take(node, self.good)
            or self._untried(node, self.referees)
            or self._untried(node, needy)
        )
