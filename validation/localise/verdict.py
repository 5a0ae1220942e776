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

from cluster.hostlist import listed
from validation.localise.evidence import NOWHERE, Evidence, Pair, Seen, Side, gather
from validation.localise.findings import Findings, Group, Link, Node, Undecided
from validation.localise.topology import Topology

ENOUGH = 2  # failures with good partners
ENOUGH_ACROSS = 3  # pairs across a boundary
# Above this chance that all nodes of some group are at fault by themselves, the group is not named.
BY_CHANCE = 0.001


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
    named = tuple(
        Node(node, partners)
        for node, partners in _failed_with(evidence).items()
        if len(partners) >= ENOUGH and node not in silent
    )
    links, unclear = [], []
    for pair in evidence.proven():
        doubt = evidence.in_doubt(*pair)
        if not doubt:
            links.append(Link(pair))
        elif not doubt & explained:
            unclear.append(_link_or_boundary(evidence, pair, doubt))
    settled = evidence.good | silent | {finding.name for finding in named}
    rest = [node for node in evidence.nodes if node not in settled]
    undecided = [*unclear, *_open_nodes(evidence, rest)]
    told = {label for one in undecided for label in one.labels}
    undecided += _open_boundaries(evidence, doubts - explained, told)
    return Findings(named, tuple(links), tuple(groups), tuple(undecided))


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


def _link_or_boundary(evidence: Evidence, pair: Pair, doubt: set[int]) -> Undecided:
    labels = _labels(evidence, doubt)
    return Undecided(
        (),
        labels,
        f"{pair[0]} and {pair[1]} fail with each other and are good with others: the link between "
        f"them, or what leads out of {' or '.join(labels)}, which no other pair crossed well.",
    )


def _open_nodes(evidence: Evidence, rest: Sequence[str]) -> Iterator[Undecided]:
    failed = _failed_with(evidence)
    alone: dict[str, set[str]] = {}  # those who failed with no good node, and with whom
    partners: dict[str, list[str]] = {node: [] for node in rest}
    for pair in evidence.failed:
        for node, partner in (pair, pair[::-1]):
            if node in partners:
                partners[node].append(partner)
    for node in rest:
        good = [partner for partner in partners[node] if partner in evidence.good]
        if not partners[node]:
            yield Undecided((node,), (), f"{node} was not measured with any node.")
        elif failed[node]:
            yield Undecided(
                (node,),
                (),
                f"{node} failed with {failed[node][0]}, which is good, and with no second good "
                "node: it is the node or the link between them.",
            )
        elif good:
            doubt = set().union(*(evidence.in_doubt(node, partner) for partner in good))
            labels = _labels(evidence, doubt)
            yield Undecided(
                (node,),
                labels,
                f"{node} failed with {listed(good)}, and nothing is known to get across the "
                f"boundary of {' or '.join(labels)}: it is the node or the group.",
            )
        else:
            alone[node] = set(partners[node])
    for members in _connected(alone):
        yield Undecided(
            members,
            (),
            f"{listed(members)} fail with each other, and with none that is known to be good: one "
            "of them is at fault, or more, or what is between them.",
        )


def _connected(graph: Mapping[str, set[str]]) -> Iterator[tuple[str, ...]]:
    left = dict.fromkeys(graph)
    while left:
        members = [left.popitem()[0]]
        for member in members:
            for other in graph[member]:
                if other in left:
                    del left[other]
                    members.append(other)
        yield tuple(sorted(members))


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
                f"No pair got across the boundary of {' or '.join(side.labels)} well: whether it "
                "is at fault is not known.",
            )
