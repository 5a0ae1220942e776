"""Which nodes run together next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from validation.localise.evidence import NOWHERE, Evidence, Pair, Seen, gather
from validation.localise.topology import Topology

MOST_ROUNDS = 4  # the first, and three after it
CONFIRMED = 2  # known-good nodes that a node must fail with, after the first round
CROSSED = 3  # pairs across a boundary that must fail, and as many as CONFIRMED after that round
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

    Lists are taken from at their end, where the nodes are that nothing in doubt is around, and lose
    what is used, so that a round costs no more than its nodes.

    good    all good nodes
    near    of each level, by the groups from that level on: good nodes that a node of these groups
            can be tested with. What lies between them below that level is known to work
    inside  good nodes of groups in doubt
    beside  boundaries in doubt that a pair of this round crosses to a group beside
    asked   other pairs of this round across each boundary in doubt
    """

    def __init__(self, nodes: Sequence[str], evidence: Evidence, referees: Sequence[str]) -> None:
        self.nodes, self.evidence, self.referees = nodes, evidence, referees
        self.used: set[str] = set()
        self.made: list[Pair] = []
        self.good = [node for node in reversed(evidence.nodes) if node in evidence.good]
        # NOWHERE is the last.
        passable = [*map(evidence.passable, range(len(evidence.sides))), True]
        if not all(passable):
            self.good.sort(
                key=lambda node: sum(not passable[side] for side in evidence.paths[node]),
                reverse=True,
            )
        levels = len(evidence.paths[evidence.nodes[0]])
        self.near: list[dict[tuple[int, ...], list[str]]] = [{} for _ in range(levels + 1)]
        self.inside: dict[int, list[str]] = {}
        self.asked: Counter[int] = Counter()
        self.beside: set[int] = set()
        for node in self.good:
            path = evidence.paths[node]
            for level in range(levels + 1):
                if level and not passable[path[level - 1]]:
                    break
                self.near[level].setdefault(path[level:], []).append(node)
            for side in path:
                if not passable[side]:
                    self.inside.setdefault(side, []).append(node)

    def pairs(self) -> list[Pair]:
        needy = self._needy()
        self._look_inside(needy)
        for node in self._free(sorted(needy, key=self._choice)):
            self._pair(node, self._near(node))
        self._cross()
        left = needy[::-1]
        for node in self._free(needy):
            self._pair(node, self._whoever(node, left))
        if self.made and len(self.nodes) <= FEW:
            for node in self._free(self.nodes):
                self._pair(node, self._take(node, [*self.nodes[::-1]]))
        return self.made

    def _free(self, nodes: Iterable[str]) -> Iterator[str]:
        """Those that are in no pair yet, when their turn comes."""
        return (node for node in nodes if node not in self.used)

    def _pair(self, node: str, partner: str | None) -> None:
        if partner is not None:
            self.made.append((node, partner))
            self.used |= {node, partner}

    def _take(
        self, node: str, places: list[str], without: frozenset[str] = frozenset()
    ) -> str | None:
        """The last of a list that is free, was not paired with the node, and is none of others."""
        tried = self.evidence.tried.get(node, set())
        aside: list[str] = []
        found = None
        while places and found is None:
            last = places.pop()
            if last not in self.used:
                aside.append(last)
                if last != node and last not in tried and last not in without:
                    found = last
        places += reversed(aside)
        return found

    def _needy(self) -> list[str]:
        """Nodes that are neither good nor known to fail with enough nodes that are."""
        evidence, good = self.evidence, self.evidence.good
        failures = dict.fromkeys((node for node in self.nodes if node not in good), 0)
        for pair, number in evidence.failed.items():
            for node, partner in (pair, pair[::-1]):
                if node in failures and number > 1 and partner in good:
                    failures[node] += not evidence.in_doubt(node, partner)
        return [node for node, failed in failures.items() if failed < CONFIRMED]

    def _look_inside(self, needy: Sequence[str]) -> None:
        """Pairs within groups in which nothing is good yet: is it the nodes or what is above?"""
        groups: dict[int, list[str]] = {}
        for node in reversed(needy):
            side = next((side for side in self.evidence.paths[node] if side != NOWHERE), NOWHERE)
            if not self.evidence.passable(side) and side not in self.inside:
                groups.setdefault(side, []).append(node)
        for members in groups.values():
            if self.evidence.rounds == 1 or (
                len(members) <= FEW and self.evidence.rounds < MOST_ROUNDS - 1
            ):
                # Neighbours have met in the first round.
                middle = len(members) // 2
                far, near = members[:middle], members[middle:]
                for node in self._free(near[::-1]):
                    self._pair(node, self._take(node, far) or self._take(node, near))

    def _around(self, node: str) -> Iterator[list[str]]:
        """Good nodes from near to far; of groups in doubt those inside, which prove more."""
        path = self.evidence.paths[node]
        yield from (self.inside[side] for side in path if side in self.inside)
        yield from (near.get(path[level:], []) for level, near in enumerate(self.near))

    def _near(self, node: str) -> str | None:
        """The nearest good node that is free."""
        return next((found for p in self._around(node) if (found := self._take(node, p))), None)

    def _choice(self, node: str) -> int:
        """How many there are of the nearest, up to FEW: who has little choice comes first."""
        places = next((places for places in self._around(node) if places), [])
        if len(places) >= FEW:
            return FEW
        return len(set(places) - self.evidence.tried.get(node, set()))

    def _cross(self) -> None:
        """Good nodes across boundaries in doubt, until enough pairs prove a boundary's fault."""
        proven: Counter[int] = Counter()
        later: Counter[int] = Counter()
        for pair, number in self.evidence.failed.items():
            doubt = self.evidence.in_doubt(*pair)
            if len(doubt) == 1 and self.evidence.good.issuperset(pair):
                proven.update(doubt)
                later.update(doubt if number > 1 else ())
        families: dict[int, list[int]] = {}
        for number, members in self.inside.items():
            if members:  # not all are in a pair
                families.setdefault(self._above(number, members[0]), []).append(number)
        for above, family in families.items():
            if above != NOWHERE and not self.evidence.passable(above):
                self._beside(sorted(family), 1)
            elif above == NOWHERE and not self.near[-1]:
                self._beside(sorted(family), CONFIRMED)
        for number in sorted(self.inside):
            boundary = self.evidence.sides[number].boundary
            wanted = max(CONFIRMED - later[boundary], CROSSED - proven[boundary])
            for _ in range(wanted - self.asked[boundary]):
                self._beyond(number)

    def _above(self, number: int, node: str) -> int:
        """The group around a node's group; NOWHERE for none."""
        path = self.evidence.paths[node]
        around = path[path.index(number) + 1 :]
        return next((side for side in around if side != NOWHERE), NOWHERE)

    def _beside(self, family: list[int], times: int) -> None:
        """Pairs of groups beside each other, all of them in doubt and what is around them too.

        If they fail as well as pairs with nodes beyond, it is what is above them all. In each round
        a group meets another.
        """
        for time in range(times):
            first = (self.evidence.rounds * times + time) % len(family)
            turned = [*family[first:], *family[:first]]
            for one, other in zip(turned[::2], [*turned[1::2], turned[0]], strict=False):
                inside = self.evidence.sides[one].inside
                for node in self._free(self.inside[one][::-1]):
                    if found := self._take(node, self.inside[other], inside):
                        self.beside |= self.evidence.in_doubt(node, found)
                        self._pair(node, found)
                        break

    def _beyond(self, number: int) -> None:
        """One pair out of a group, across nothing else in doubt if there is such a pair."""
        inside = self.evidence.sides[number].inside
        for node in self._free(self.inside.get(number, ())[::-1]):
            path = self.evidence.paths[node]
            around = inside
            for level in range(path.index(number) + 1, len(self.near)):
                if found := self._take(node, self.near[level].get(path[level:], []), around):
                    break
                if level < len(path) and path[level] != NOWHERE:
                    around |= self.evidence.sides[path[level]].inside
            else:
                if around == inside and self.evidence.sides[number].boundary in self.beside:
                    return
                found = self._take(node, self.good, around) or self._take(node, self.good, inside)
            if found:
                self.asked.update(self.evidence.in_doubt(node, found))
                self._pair(node, found)
                return

    def _whoever(self, node: str, needy: list[str]) -> str | None:
        """Who may tell something of a node that no good one is near to or left for."""
        return (
            self._take(node, self.good)
            or self._take(node, [*self.referees[::-1]])
            or self._take(node, needy)
        )
