"""What the measurements mean: which node, which link, which group, and what cannot be told apart.

Nothing is named that may be good. A finding needs the others to be ruled out:

    node   it failed with every partner, two good ones among them that nothing in doubt lies between
    link   both nodes are good with others, and every boundary between them is crossed by others
    group  every pair across its boundary failed, three of them with good nodes that no other
           boundary in doubt lies between; or everything in it failed with everybody

Whatever is neither named nor known to be good is undecided, what was not measured too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cluster.hostlist import listed
from validation.localise.evidence import NOWHERE, Evidence, Pair, Seen, Side, gather
from validation.localise.findings import Findings, Group, Link, Node, Undecided
from validation.localise.topology import Topology

ENOUGH = 2  # failures with good partners
ENOUGH_ACROSS = 3  # pairs across a boundary
# Above this chance that all nodes of some group are at fault by themselves, the group is not named.
BY_CHANCE = 0.01


def conclude(nodes: Sequence[str], topology: Topology, seen: Iterable[Seen]) -> Findings:
    """What is at fault, as far as it can be told from what was seen.

    nodes are those under test; others that were measured with them are judged as well.
    """
    evidence = gather(nodes, topology, seen)
    doubts = {side.boundary for side in evidence.sides} - evidence.crossed
    whole = _whole_groups(evidence)
    silent = {node for group in whole for node in group.nodes}
    joints = _joints(evidence, doubts)
    explained = {boundary for _, boundaries in joints for boundary in boundaries}
    cut = _cut(evidence, doubts - explained)
    explained |= {boundary for _, boundary in cut}
    groups = [*whole, *(group for group, _ in joints), *(group for group, _ in cut)]
    failed = _failed_with(evidence)
    named = tuple(
        Node(node, failed[node])
        for node in evidence.nodes
        if len(failed.get(node, ())) >= ENOUGH and node not in silent
    )
    links: list[Link] = []
    unclear: dict[Pair, set[int]] = {}
    for pair in evidence.proven():
        doubt = evidence.in_doubt(*pair)
        if not doubt:
            links.append(Link(pair))
        elif not doubt & explained:
            unclear[pair] = doubt
    settled = evidence.good | silent | {finding.name for finding in named}
    rest = [node for node in evidence.nodes if node not in settled]
    undecided = [*_links_or_boundaries(evidence, unclear), *_open_nodes(evidence, rest)]
    told = {label for one in undecided for label in one.labels}
    undecided += _open_boundaries(evidence, doubts - explained, told)
    good = tuple(node for node in evidence.nodes if node in evidence.good)
    return Findings(named, tuple(links), tuple(groups), tuple(undecided), good)


def _failed_with(evidence: Evidence) -> dict[str, tuple[str, ...]]:
    """Nodes that are not good, and the good ones they failed with across no boundary in doubt."""
    partners: dict[str, list[str]] = {}
    for pair in evidence.failed:
        for node, partner in (pair, pair[::-1]):
            if node not in evidence.good:
                known = partners.setdefault(node, [])
                if partner in evidence.good and not evidence.in_doubt(node, partner):
                    known.append(partner)
    return {node: tuple(dict.fromkeys(known)) for node, known in partners.items()}


# --- groups --------------------------------------------------------------------------------------


def _whole_groups(evidence: Evidence) -> list[Group]:
    """Groups in which every node failed with everybody, a good node outside among them."""
    met_good: set[str] = set()  # nodes that failed with a good one
    partners: dict[str, set[str]] = {}
    for pair in evidence.failed:
        for node, partner in (pair, pair[::-1]):
            partners.setdefault(node, set()).add(partner)
            if partner in evidence.good:
                met_good.add(node)
    suspects = len(evidence.nodes) - len(evidence.good)
    found: list[Side] = []
    for side in sorted(evidence.sides, key=lambda side: -len(side.inside)):
        outside = len(evidence.nodes) - len(side.inside)
        alone = (suspects - len(side.inside) + 1) / (outside + 1)
        if (
            side.inside <= met_good
            and not side.inside & evidence.good
            # Of an odd number one may have had no partner inside.
            and sum(side.inside.isdisjoint(partners[node]) for node in side.inside) <= 1
            and len(evidence.sides) * alone ** len(side.inside) < BY_CHANCE
            and not any(side.inside <= larger.inside for larger in found)
        ):
            found.append(side)
    return [
        Group(side.labels, tuple(n for n in evidence.nodes if n in side.inside), (), False)
        for side in found
    ]


def _joints(evidence: Evidence, doubts: set[int]) -> list[tuple[Group, set[int]]]:
    """Where every part of a group, or of all there is, is cut off from the others.

    Then it is what joins the parts: the switch above them. With it the boundaries that it explains.
    """
    found: list[tuple[Group, set[int]]] = []
    explained: set[int] = set()
    proven = evidence.proven()
    sides = [
        side
        for side in sorted(evidence.sides, key=lambda side: -len(side.inside))
        if side.boundary in doubts and not side.inside.isdisjoint(evidence.good)
    ]
    everything = Side((), frozenset(evidence.nodes), NOWHERE)
    for parent in (*sides, everything):
        if parent.boundary in explained:
            continue
        parts: list[Side] = []
        part_of: dict[str, int] = {}
        for side in sides:
            known = side.boundary in explained or not part_of.keys().isdisjoint(side.inside)
            if side.inside < parent.inside and not known:
                part_of |= dict.fromkeys(side.inside, len(parts))
                parts.append(side)
        if len(parts) < 2 or not parent.inside & evidence.good <= part_of.keys():
            continue
        boundaries = {parent.boundary, *(part.boundary for part in parts)}
        # What another boundary in doubt explains as well proves nothing of these.
        pairs = [pair for pair in proven if set() < evidence.in_doubt(*pair) <= boundaries]
        places = [(part_of.get(one, NOWHERE), part_of.get(other, NOWHERE)) for one, other in pairs]
        if _all_apart(len(parts), places, beyond=parent is not everything):
            labels = tuple(label for part in parts for label in part.labels)
            nodes = tuple(node for node in evidence.nodes if node in part_of)
            group = Group(parent.labels or labels, nodes, tuple(pairs), True, labels)
            found.append((group, boundaries))
            explained |= boundaries
    return found


def _all_apart(parts: int, pairs: Iterable[tuple[int, int]], *, beyond: bool) -> bool:
    """Whether no part can be good because only another is cut off, or only a link is bad.

    pairs   of parts, or NOWHERE for what is outside of all
    beyond  whether there is anything outside
    """
    met: list[Counter[int]] = [Counter() for _ in range(parts)]
    for one, other in pairs:
        if one != NOWHERE:
            met[one][other] += 1
        if other != NOWHERE:
            met[other][one] += 1
    for others in met:
        outside = others.pop(NOWHERE, 0)
        most = max(others.values(), default=0)
        if not most or outside + sum(others.values()) - most < ENOUGH or (beyond and not outside):
            return False
    return True


def _cut(evidence: Evidence, doubts: set[int]) -> list[tuple[Group, int]]:
    """Boundaries that good nodes do not get across, and nothing else is in doubt between them."""
    pairs: dict[int, list[Pair]] = {}
    for pair in evidence.proven():
        if len(doubt := evidence.in_doubt(*pair)) == 1:
            pairs.setdefault(next(iter(doubt)), []).append(pair)
    found: list[tuple[Group, int]] = []
    for boundary in sorted(doubts & set(pairs)):
        sides = [side for side in evidence.sides if side.boundary == boundary]
        inside = sides[0].inside
        ends = {node for pair in pairs[boundary] for node in pair}
        both = len(ends & inside) >= ENOUGH and len(ends - inside) >= ENOUGH
        if both and len(pairs[boundary]) >= ENOUGH_ACROSS:
            labels = tuple(label for side in sides for label in side.labels)
            nodes = tuple(node for node in evidence.nodes if node in inside)
            found.append((Group(labels, nodes, tuple(pairs[boundary]), True), boundary))
    return found


# --- what cannot be told apart -------------------------------------------------------------------


def _labels(evidence: Evidence, boundaries: Iterable[int]) -> tuple[str, ...]:
    wanted = set(boundaries)
    return tuple(
        label for side in evidence.sides if side.boundary in wanted for label in side.labels
    )


def _links_or_boundaries(
    evidence: Evidence, unclear: Mapping[Pair, set[int]]
) -> Iterator[Undecided]:
    """Pairs of good nodes that fail, and boundaries that may be why; told once for each tangle."""
    graph: dict[object, set[object]] = {}
    for pair, doubt in unclear.items():
        for boundary in doubt:
            graph.setdefault(pair, set()).add(boundary)
            graph.setdefault(boundary, set()).add(pair)
    for tangle in _connected(graph):
        pairs = [one for one in tangle if not isinstance(one, int)]
        labels = _labels(evidence, (one for one in tangle if isinstance(one, int)))
        one, other = pairs[0]
        more = f", and so do {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
        yield Undecided(
            (),
            labels,
            f"{one} and {other} fail with each other and are good with others{more}: the link "
            f"between them, or what leads out of {_or(labels)}, which no pair crossed well.",
        )


def _open_nodes(evidence: Evidence, rest: Sequence[str]) -> Iterator[Undecided]:
    failed = _failed_with(evidence)
    partners: dict[str, list[str]] = {node: [] for node in rest}
    for pair in evidence.failed:
        for node, partner in (pair, pair[::-1]):
            if node in partners:
                partners[node].append(partner)
    unmeasured: list[str] = []
    once: list[str] = []  # failed with one good node, and met no other
    outside: dict[tuple[str, ...], list[str]] = {}  # failed with good ones across what is in doubt
    alone: dict[object, set[object]] = {}  # failed with no good node, and with whom
    for node in rest:
        good = [partner for partner in partners[node] if partner in evidence.good]
        if not partners[node]:
            unmeasured.append(node)
        elif failed[node]:
            once.append(node)
        elif good:
            doubt = set().union(*(evidence.in_doubt(node, partner) for partner in good))
            outside.setdefault(_labels(evidence, doubt), []).append(node)
        else:
            alone[node] = set(partners[node])
    if unmeasured:
        yield Undecided(
            tuple(unmeasured), (), f"{_were(unmeasured)} not measured with any other node."
        )
    if once:
        yield Undecided(
            tuple(once),
            (),
            f"{listed(once)} failed with one good node ({failed[once[0]][0]} with {once[0]}) and "
            "had no second: the node, or the link between the two."
            if len(once) > 1
            else f"{once[0]} failed with {failed[once[0]][0]}, which is good, and had no second "
            "good node: the node, or the link between the two.",
        )
    for labels, nodes in outside.items():
        yield Undecided(
            tuple(nodes),
            labels,
            f"{listed(nodes)} failed with good nodes, but nothing is known to get out of "
            f"{_or(labels)}: what is there, or the {'nodes' if len(nodes) > 1 else 'node'}.",
        )
    # Where nothing ran well at all, who failed with whom tells nothing.
    everyone = [list(alone)] if alone and not evidence.good else _connected(alone)
    for members in everyone:
        names = sorted(map(str, members))
        yield Undecided(
            tuple(names),
            (),
            f"{listed(names)} failed with each other, and none ran with a node that is known to be "
            "good: one of them, or more, or what is between them.",
        )


def _were(nodes: Sequence[str]) -> str:
    return f"{listed(nodes)} {'were' if len(nodes) > 1 else 'was'}"


def _or(labels: Sequence[str]) -> str:
    most = 4
    shown = [*labels[:most], *([f"{len(labels) - most} more"] if len(labels) > most else [])]
    return " or ".join(shown)


def _connected(graph: Mapping[object, set[object]]) -> Iterator[list[Any]]:
    """Parts of a graph that nothing leads from one to another of."""
    left = dict.fromkeys(graph)
    while left:
        members = [next(iter(left))]
        del left[members[0]]
        for member in members:
            for other in graph[member]:
                if other in left:
                    del left[other]
                    members.append(other)
        yield members


def _open_boundaries(
    evidence: Evidence, boundaries: set[int], told: set[str]
) -> Iterator[Undecided]:
    """Boundaries with good nodes on both sides; of a side without, its nodes are told of."""
    for side in evidence.sides:
        good = len(side.inside & evidence.good)
        if (
            side.boundary in boundaries
            and 0 < good < len(evidence.good)
            and not told & set(side.labels)
        ):
            yield Undecided(
                (),
                side.labels,
                f"No pair got across the boundary of {_or(side.labels)} well: whether it "
                "is at fault is not known.",
            )
