"""Random clusters of a few nodes with any groups and any faults: nobody is accused who is good.

A link at fault is one of few: each node has one at most. A node all of whose links are at fault is
a node at fault for all that pairs can tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.localise import MOST_ROUNDS, Seen, Topology, conclude, next_round


@dataclass(frozen=True)
class Faults:
    """Groups of `cut` nothing gets out of, at those of `dead` nothing runs."""

    bad: frozenset[str]
    links: frozenset[frozenset[str]]
    cut: tuple[frozenset[str], ...]
    dead: tuple[frozenset[str], ...]

    def fails(self, one: str, other: str) -> bool:
        pair = {one, other}
        return (
            bool(pair & self.bad)
            or pair in self.links
            or any((one in group) != (other in group) for group in self.cut)
            or any(pair & group for group in self.dead)
        )

    def out_of_reach(self, node: str) -> bool:
        return node in self.bad or any(node in group for group in self.dead)


@st.composite
def levels(draw, nodes):
    """Groups of up to three levels, which need not lie within each other."""
    found = []
    for number in range(draw(st.integers(0, 3))):
        groups = draw(
            st.lists(st.integers(-1, len(nodes) // 2), min_size=len(nodes), max_size=len(nodes))
        )
        if draw(st.booleans()):
            groups.sort()
        members: dict[str, list[str]] = {}
        for node, group in zip(nodes, groups, strict=True):
            if group >= 0:
                members.setdefault(f"g{number}-{group}", []).append(node)
        found.append((f"level{number}", members))
    return Topology.of(found)


@st.composite
def clusters(draw):
    nodes = tuple(f"n{number:02}" for number in range(draw(st.integers(2, 12))))
    topology = draw(levels(nodes))
    groups = [
        frozenset(members)
        for level in topology.levels
        for members in level.groups.values()
        if len(members) > 1
    ]
    order = draw(st.permutations(nodes))
    pairs = [frozenset(pair) for pair in zip(order[::2], order[1::2], strict=False)]
    some = st.lists(st.sampled_from(groups), max_size=1) if groups else st.just([])
    faults = Faults(
        draw(st.frozensets(st.sampled_from(nodes), max_size=draw(st.sampled_from((0, 1, 2, 12))))),
        draw(st.frozensets(st.sampled_from(pairs), max_size=draw(st.integers(0, 2)))),
        tuple(draw(some)),
        tuple(draw(some)),
    )
    silent = draw(st.sampled_from((0, 0, 0, 1, 3)))  # tenths of the pairs give no answer
    return nodes, topology, faults, silent


def measured(nodes, topology, faults, silent):
    seen: list[Seen] = []
    number = 0
    while pairs := next_round(nodes, topology, seen):
        number += 1
        assert number <= MOST_ROUNDS
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs)
        assert not {frozenset(one.nodes) for one in seen} & set(map(frozenset, pairs))
        for place, pair in enumerate(pairs):
            unknown = (place * 7 + number * 3) % 10 < silent
            seen.append(Seen(pair, None if unknown else not faults.fails(*pair), number))
    return seen


@settings(max_examples=600, deadline=None)
@given(clusters())
def test_nobody_is_accused_who_is_good_and_nothing_is_clear_that_is_not(cluster):
    nodes, topology, faults, silent = cluster
    seen = measured(nodes, topology, faults, silent)
    findings = conclude(nodes, topology, seen)
    groups = {
        f"{level.name} {name}": frozenset(members)
        for level in topology.levels
        for name, members in level.groups.items()
    }

    assert {node.name for node in findings.nodes} <= faults.bad
    assert {frozenset(link.nodes) for link in findings.links} <= faults.links
    everything = frozenset(nodes)
    lost = {side for group in faults.cut for side in (group, everything - group)}
    for group in findings.groups:
        named = [groups[label] for label in group.labels]
        parts = [groups[part] for part in group.parts]
        apart = [part in lost or all(map(faults.out_of_reach, part)) for part in parts]
        assert (
            any(one in lost for one in named)
            # No part gets to another if all but one cannot get out.
            or (parts and sum(apart) >= len(parts) - 1)
            or all(
                faults.out_of_reach(node) or any(node in cut for cut in faults.cut)
                for node in group.nodes
            )
        ), group

    told = {node.name for node in findings.nodes}
    told |= {node for one in findings.undecided for node in one.nodes}
    told |= {node for group in findings.groups if not group.inside for node in group.nodes}
    assert told | set(findings.good) == set(nodes)
    assert not told & set(findings.good)
    assert faults.bad <= told
    if any(one.ok is False for one in seen):
        assert not findings.clear


@settings(max_examples=200, deadline=None)
@given(clusters())
def test_what_is_healthy_is_clear(cluster):
    nodes, topology, _, _ = cluster
    healthy = Faults(frozenset(), frozenset(), (), ())
    seen = measured(nodes, topology, healthy, 0)
    findings = conclude(nodes, topology, seen)
    assert findings.clear, findings.sentences
    assert findings.good == nodes


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(clusters(), st.randoms())
def test_the_order_of_what_was_seen_does_not_matter(cluster, random):
    nodes, topology, faults, silent = cluster
    seen = measured(nodes, topology, faults, silent)
    mixed = [Seen(one.nodes[::-1], one.ok, one.round) for one in seen]
    random.shuffle(mixed)
    one, other = conclude(nodes, topology, seen), conclude(nodes, topology, mixed)
    assert [node.name for node in one.nodes] == [node.name for node in other.nodes]
    assert {frozenset(link.nodes) for link in one.links} == {
        frozenset(link.nodes) for link in other.links
    }
    assert [group.labels for group in one.groups] == [group.labels for group in other.groups]
    assert one.good == other.good
