"""Simulated clusters with nodes, links and switches at fault, and who finds which of them.

A world of a seed is always the same. A node at fault fails with everybody, a link with one pair, a
switch with all pairs across it, or with all of its nodes.

    nodes     up to 5 % of all, any number of them; of 16 one
    links     up to 1 % of the pairs of the algorithm's own first round, of few pairs one: of all
              pairs of a cluster nobody who measures fewer finds one but by chance
    switches  in half of the seeds one is lost: what leads out of a leaf switch or of one above it,
              a leaf switch with all its nodes, or one above it, so that its leaves are apart

Beside ours (validation.localise) run the algorithms of other programs, as far as they are
described in public, reduced to what is measured and who is named. What a description leaves open,
we decided; it is said at each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, cycle, pairwise

from validation.localise import Findings, Seen, Topology, conclude, next_round

SIZES = (16, 64, 256, 1024, 4096, 16384)
# Nodes of a leaf switch and of one above, by the number of nodes.
SWITCHES = {16: (4, 8), 64: (8, 32), 256: (16, 64), 1024: (16, 256), 4096: (32, 512)}
LARGEST = (32, 2048)
BAD_NODES, BAD_LINKS = 0.05, 0.01

Pair = tuple[str, str]
Link = frozenset[str]

# --- the cluster ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    nodes: tuple[str, ...]
    topology: Topology
    switches: dict[str, frozenset[str]]  # and their nodes
    places: dict[str, frozenset[str]]  # node -> its switches

    def leaves(self, switch: str) -> list[str]:
        """Switches below one."""
        return [name for name, nodes in self.switches.items() if nodes < self.switches[switch]]


@cache
def cluster(size: int) -> Cluster:
    """Nodes at leaf switches, and these below others."""
    nodes = tuple(f"gpu{number:05}" for number in range(size))
    switches: dict[str, frozenset[str]] = {}
    places: dict[str, set[str]] = {node: set() for node in nodes}
    levels = []
    for kind, each in zip(("leaf", "spine"), SWITCHES.get(size, LARGEST), strict=True):
        groups = {
            f"{kind}{first // each}": nodes[first : first + each] for first in range(0, size, each)
        }
        levels.append(("switch", groups))
        for name, members in groups.items():
            switches[name] = frozenset(members)
            for node in members:
                places[node].add(name)
    return Cluster(
        nodes,
        Topology.of(levels),
        switches,
        {node: frozenset(names) for node, names in places.items()},
    )


@dataclass(frozen=True)
class World:
    """What is at fault.

    walls  switches that nothing gets out of
    dead   switches at which nothing runs
    lost   the switch that is the cause of these; "" for none
    """

    cluster: Cluster
    bad: frozenset[str] = frozenset()
    links: frozenset[Link] = frozenset()
    walls: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()
    lost: str = ""

    def reach(self, one: str, other: str) -> bool:
        """Whether two nodes run well together, were it not for the link."""
        ours, theirs = self.cluster.places[one], self.cluster.places[other]
        return not (
            one in self.bad
            or other in self.bad
            or (self.walls and self.walls & (ours ^ theirs))
            or (self.dead and self.dead & (ours | theirs))
        )

    def runs(self, members: Sequence[str]) -> bool:
        """Whether nodes run well together; of more than two, a fault between any two is seen."""
        first, others = members[0], members[1:]
        if not all(self.reach(first, other) for other in others):
            return False
        if len(members) == 2:
            return frozenset(members) not in self.links
        inside = set(members)
        return not any(link <= inside for link in self.links)

    @property
    def nodes_there(self) -> set[str]:
        """Nodes at fault that can be told from the switch that is lost."""
        return {node for node in self.bad if not self.dead & self.cluster.places[node]}

    @property
    def links_there(self) -> set[Link]:
        """Links at fault that nothing larger hides."""
        return {link for link in self.links if self.reach(*sorted(link))}


def world(cluster: Cluster, seed: int, first: Sequence[Pair]) -> World:
    """The faults of a seed; `first` are the pairs that the links are drawn from."""
    draw = random.Random(seed)
    size = len(cluster.nodes)
    bad = draw.sample(cluster.nodes, draw.randint(0, round(BAD_NODES * size)))
    lost, kind = "", draw.choice(("", "", "", "", "out", "dead", "out above", "apart"))
    if kind:
        level = cluster.topology.levels["above" in kind or kind == "apart"]
        lost = draw.choice(sorted(level.groups))
    links = draw.sample(range(len(first)), draw.randint(0, max(1, round(BAD_LINKS * size / 2))))
    return World(
        cluster,
        frozenset(bad),
        frozenset(frozenset(first[number]) for number in links),
        frozenset((lost, *(cluster.leaves(lost) if kind == "apart" else ())))
        if kind in ("out", "out above", "apart")
        else frozenset(),
        frozenset((lost,) if kind == "dead" else ()),
        lost,
    )


# --- an algorithm at work ------------------------------------------------------------------------


@dataclass
class Named:
    """Whom an algorithm calls at fault."""

    nodes: set[str]
    links: set[Link]
    switches: set[str]
    undecided: int = 0


@dataclass
class Lab:
    """Measures for an algorithm, and counts."""

    world: World
    rounds: int = 0
    tests: int = 0

    def side_by_side(self, groups: Iterable[Sequence[str]]) -> list[bool]:
        results = [self.world.runs(group) for group in groups]
        self.rounds += 1
        self.tests += len(results)
        return results


@dataclass(frozen=True)
class Algorithm:
    """One program's.

    first  its first round, or the pairs that stand for it
    find   measures and names; it may draw
    most   nodes up to which it is simulated; None for any number
    """

    name: str
    first: Callable[[Cluster, random.Random], list[Pair]]
    find: Callable[[Cluster, Lab, list[Pair], random.Random], Named]
    cost: Callable[[int], tuple[int, int]] | None = None
    most: int | None = None


@dataclass(frozen=True)
class Score:
    """What became of a seed.

    there    faults that can be told
    found    of these, the ones that were named as what they are
    accused  good nodes that were named
    """

    seed: int
    rounds: int
    tests: int
    there: int
    found: int
    accused: int
    undecided: int
    wrong: int  # links and switches that were named and are not at fault
    switch: bool  # whether one is lost

    @property
    def exact(self) -> bool:
        return self.found == self.there and not (self.accused or self.undecided or self.wrong)


def score(algorithm: Algorithm, cluster: Cluster, seed: int) -> Score:
    draw = random.Random(f"{algorithm.name} {seed}")
    first = algorithm.first(cluster, draw)
    lab = Lab(world(cluster, seed, first))
    named = algorithm.find(cluster, lab, first, draw)
    truth = lab.world
    switches = {truth.lost} - {""}
    found = (
        len(named.nodes & truth.nodes_there)
        + len(named.links & truth.links_there)
        + len(named.switches & switches)
    )
    there = len(truth.nodes_there) + len(truth.links_there) + len(switches)
    wrong = len(named.links - truth.links) + len(named.switches - switches)
    return Score(
        seed, lab.rounds, lab.tests, there, found, len(named.nodes - truth.bad),
        named.undecided, wrong, bool(truth.lost),
    )  # fmt: skip


# --- ours ----------------------------------------------------------------------------------------


def localise(cluster: Cluster, lab: Lab) -> Findings:
    seen: list[Seen] = []
    while pairs := next_round(cluster.nodes, cluster.topology, seen):
        results = lab.side_by_side(pairs)
        seen += [Seen(pair, ok, lab.rounds) for pair, ok in zip(pairs, results, strict=True)]
    return conclude(cluster.nodes, cluster.topology, seen)


def _ours(cluster: Cluster, lab: Lab, first: list[Pair], draw: random.Random) -> Named:
    findings = localise(cluster, lab)
    switches = set()
    for group in findings.groups:
        names = {label.partition(" ")[2] for label in group.labels}
        # Of two switches that are all there are, no pair tells which; the right one counts.
        switches |= names & {lab.world.lost} or names
    return Named(
        {node.name for node in findings.nodes},
        {frozenset(link.nodes) for link in findings.links},
        switches,
        len(findings.undecided),
    )


def _our_first(cluster: Cluster, draw: random.Random) -> list[Pair]:
    return _first_round(len(cluster.nodes))


@cache
def _first_round(size: int) -> list[Pair]:
    return list(next_round(cluster(size).nodes, cluster(size).topology, ()))


# --- others --------------------------------------------------------------------------------------


def _neighbours(cluster: Cluster, draw: random.Random) -> list[Pair]:
    return list(zip(cluster.nodes[::2], cluster.nodes[1::2], strict=False))


def _shuffled(cluster: Cluster, draw: random.Random) -> list[Pair]:
    nodes = draw.sample(cluster.nodes, len(cluster.nodes))
    return list(zip(nodes[::2], nodes[1::2], strict=False))


def _of_pairs(cluster: Cluster, results: dict[Link, bool]) -> Named:
    """Nodes that fail with all, and the other pairs that fail."""
    good = {node for pair, ok in results.items() if ok for node in pair}
    failed = {pair for pair, ok in results.items() if not ok}
    nodes = set(cluster.nodes) - good
    return Named(nodes, {pair for pair in failed if not pair & nodes}, set())


def _circle(cluster: Cluster, lab: Lab, first: list[Pair], draw: random.Random) -> Named:
    """SuperBench: every pair, by the circle method; one stays, the others turn."""
    one, *turning = cluster.nodes
    results: dict[Link, bool] = {}
    for _ in turning:
        circle = [one, *turning]
        pairs = [(circle[place], circle[-1 - place]) for place in range(len(circle) // 2)]
        results |= zip(map(frozenset, pairs), lab.side_by_side(pairs), strict=True)
        turning = [*turning[1:], turning[0]]
    return _of_pairs(cluster, results)


def _combinations(cluster: Cluster, lab: Lab, first: list[Pair], draw: random.Random) -> Named:
    """GCM: every pair, one after another."""
    results = {
        frozenset(pair): lab.side_by_side([pair])[0] for pair in combinations(cluster.nodes, 2)
    }
    return _of_pairs(cluster, results)


RANDOM_PAIRINGS = 15


def _random_pairings(cluster: Cluster, lab: Lab, first: list[Pair], draw: random.Random) -> Named:
    """Imbue: 15 pairings, and the share that each node passed. Open: from which share on it is
    bad; here below one half."""
    passed = dict.fromkeys(cluster.nodes, 0)
    for number in range(RANDOM_PAIRINGS):
        pairs = _shuffled(cluster, draw) if number else first
        for pair, ok in zip(pairs, lab.side_by_side(pairs), strict=True):
            for node in pair:
                passed[node] += ok
    return Named({node for node, n in passed.items() if 2 * n < RANDOM_PAIRINGS}, set(), set())


def _second_pass(cluster: Cluster, lab: Lab, first: list[Pair], draw: random.Random) -> Named:
    """CHS: random pairs; then each node that failed once more, with one that passed."""
    results = lab.side_by_side(first)
    good = [node for pair, ok in zip(first, results, strict=True) if ok for node in pair]
    suspects = [node for pair, ok in zip(first, results, strict=True) if not ok for node in pair]
    if not suspects or not good:
        return Named(set(suspects), set(), set())
    pairs = list(zip(suspects, cycle(draw.sample(good, len(good))), strict=False))
    again = lab.side_by_side(pairs)
    return Named({pair[0] for pair, ok in zip(pairs, again, strict=True) if not ok}, set(), set())


def _halves(lab: Lab, groups: list[Sequence[str]], smallest: int = 2) -> list[Sequence[str]]:
    """The smallest groups that still fail, by halving all that do side by side."""
    found: list[Sequence[str]] = []
    while groups:
        failing = [g for g, ok in zip(groups, lab.side_by_side(groups), strict=True) if not ok]
        found += [group for group in failing if len(group) <= smallest]
        large = [group for group in failing if len(group) > smallest]
        groups = [
            half for group in large for half in (group[: len(group) // 2], group[len(group) // 2 :])
        ]
    return found


def _bisect(cluster: Cluster, lab: Lab, first: list[Pair], draw: random.Random) -> Named:
    """Primus: all nodes, and halves of what fails. Open: what becomes of a pair; here both of its
    nodes are named."""
    return Named({node for pair in _halves(lab, [cluster.nodes]) for node in pair}, set(), set())


def _reference(cluster: Cluster, lab: Lab, first: list[Pair], draw: random.Random) -> Named:
    """cvs: each node with the first; then a ring of those that passed, which grows by one node,
    and goes without it if it fails. A ring's run sees links of neighbours."""
    reference, *others = cluster.nodes
    bad = {other for other in others if not lab.side_by_side([(reference, other)])[0]}
    passed = [other for other in others if other not in bad]
    ring = [reference, *passed[:1]]
    for node in passed[1:]:
        lab.rounds += 1
        lab.tests += 1
        if lab.world.runs((ring[-1], node)) and lab.world.runs((node, ring[0])):
            ring.append(node)
        else:
            bad.add(node)
    return Named(bad, set(), set())


def _staged(cluster: Cluster, lab: Lab, first: list[Pair], draw: random.Random) -> Named:
    """NVCRE: screening, bisection, confirmation, across boundaries. Open: of which groups; here
    the leaf switches are screened, the nodes of failing pairs are confirmed with a node that
    passed, and each leaf switch is paired with the next, twice; what fails both times is named."""
    leaves = cluster.topology.levels[0].groups
    pairs = _halves(lab, [tuple(members) for members in leaves.values()])
    suspects = [node for pair in pairs for node in pair]
    good = sorted(set(cluster.nodes) - set(suspects))
    if not good:
        return Named(set(suspects), set(), set())
    passed = set(good)
    partners: dict[str, str] = {}
    for members in leaves.values():
        nearest = next((node for node in members if node in passed), good[0])
        partners |= dict.fromkeys(members, nearest)
    confirming = [(node, partners[node]) for node in suspects]
    confirmed = lab.side_by_side(confirming) if suspects else []
    bad = {node for node, ok in zip(suspects, confirmed, strict=True) if not ok}
    links = {frozenset(pair) for pair in pairs if not bad & set(pair)}
    usable = {leaf: [n for n in members if n not in bad] for leaf, members in leaves.items()}
    names = [leaf for leaf, ns in usable.items() if ns]
    across = [(one, other) for one, other in zip(names, [*names[1:], names[0]], strict=True)]
    failures = dict.fromkeys(names, 0)
    crossed = lab.side_by_side([(usable[a][0], usable[b][-1]) for a, b in across])
    for (one, other), ok in zip(across, crossed, strict=True):
        failures[one] += not ok
        failures[other] += not ok
    return Named(bad, links, {leaf for leaf, count in failures.items() if count == 2})


OURS = Algorithm("Plumbline", _our_first, _ours)
OTHERS = (
    Algorithm("SuperBench", _neighbours, _circle, lambda n: (n - 1, n * (n - 1) // 2), 64),
    Algorithm("Imbue", _shuffled, _random_pairings),
    Algorithm("CHS", _shuffled, _second_pass),
    Algorithm(
        "GCM", _neighbours, _combinations, lambda n: (n * (n - 1) // 2, n * (n - 1) // 2), 64
    ),
    Algorithm("Primus", _neighbours, _bisect),
    Algorithm("cvs", lambda cluster, draw: list(pairwise(cluster.nodes)), _reference),
    Algorithm("NVCRE", _neighbours, _staged),
)
ALGORITHMS = (OURS, *OTHERS)
