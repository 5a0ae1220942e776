"""Which node, link or group is at fault: rounds of pairs, and what they mean.

The rules of `conclude` have a test each that fails when the rule is gone (scripts/mutate). What
random clusters come to: test_localise_random.py. Large ones: test_localisation.py.
"""

from __future__ import annotations

import pytest

from cluster.declaration import Declaration, Gpus, Node, Partition
from validation import localise
from validation.localise import MOST_ROUNDS, Seen, Topology, conclude, next_round

NOWHERE = Topology()
TWELVE = tuple(f"{leaf}{number}" for leaf in "abc" for number in (1, 2, 3, 4))
LEAVES = Topology.of([("switch", {"leaf1": TWELVE[:4], "leaf2": TWELVE[4:8], "leaf3": TWELVE[8:]})])


def seen(text, first=1):
    """`a-b c!d | e?f`: ran well, failed, no answer; rounds are divided by a bar."""
    found = []
    for number, pairs in enumerate(text.split("|"), first):
        for pair in pairs.split():
            sign = next(sign for sign in "-!?" if sign in pair)
            found.append(
                Seen(tuple(pair.split(sign)), {"-": True, "!": False, "?": None}[sign], number)
            )
    return tuple(found)


def run(nodes, topology, fails, referees=()):
    """All rounds, with what was seen; `fails` says of two nodes whether they fail."""
    measured: list[Seen] = []
    number = 0
    while pairs := next_round(nodes, topology, measured, referees):
        number += 1
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs)
        measured += [Seen(pair, not fails(*pair), number) for pair in pairs]
    assert number <= MOST_ROUNDS
    return measured


def found(nodes, topology, fails, referees=()):
    return conclude(nodes, topology, run(nodes, topology, fails, referees))


def bad(*nodes):
    return lambda one, other: one in nodes or other in nodes


def link(*pairs):
    return lambda one, other: any({one, other} == set(pair) for pair in pairs)


def out_of(*groups):
    return lambda one, other: any((one in group) != (other in group) for group in groups)


def either(*faults):
    return lambda one, other: any(fault(one, other) for fault in faults)


def names(findings):
    return [node.name for node in findings.nodes]


# --- rounds --------------------------------------------------------------------------------------


def test_the_first_round_pairs_all_nodes():
    assert next_round("abcd", NOWHERE, ()) == (("a", "b"), ("c", "d"))


def test_the_first_round_has_pairs_inside_each_group_and_two_nodes_of_each_across():
    pairs = next_round(TWELVE, LEAVES, ())
    inside = [pair for pair in pairs if pair[0][0] == pair[1][0]]
    assert sorted(pair[0][0] for pair in inside) == ["a", "b", "c"]
    across = [pair for pair in pairs if pair not in inside]
    # Each group meets both others, so that one that is lost is not taken for another.
    assert {frozenset(node[0] for node in pair) for pair in across} == {
        frozenset("ab"), frozenset("bc"), frozenset("ac"),
    }  # fmt: skip


def test_a_healthy_cluster_is_measured_once():
    assert {one.round for one in run(TWELVE, LEAVES, bad())} == {1}
    assert found(TWELVE, LEAVES, bad()).clear


def test_the_odd_node_runs_with_a_good_one_in_the_next_round():
    measured = run("abcde", NOWHERE, bad())
    assert next(one.nodes for one in measured if one.round == 2)[0] == "e"
    assert conclude("abcde", NOWHERE, measured).clear


def test_suspects_run_with_good_nodes_of_their_own_twice():
    nodes = [f"n{number:02}" for number in range(20)]
    measured = run(nodes, NOWHERE, bad("n00", "n02"))
    later = [one.nodes for one in measured if one.round > 1]
    for suspect in ("n00", "n02"):
        partners = [pair[1] for pair in later if pair[0] == suspect]
        assert len(partners) == len(set(partners)) == 2
        assert not {"n00", "n01", "n02", "n03"} & set(partners[:1])
    assert {one.round for one in measured} == {1, 2, 3}


def test_a_suspect_runs_with_a_node_near_it():
    measured = run(TWELVE, LEAVES, bad("a2"))
    assert {one.nodes[1][0] for one in measured if one.nodes[0] == "a2" and one.round > 1} == {"a"}


def test_few_nodes_use_every_round_that_there_is():
    measured = run("abcd", NOWHERE, link("ab"))
    assert [one.nodes for one in measured if one.round == 2] == [("a", "c"), ("b", "d")]
    five = run("abcde", NOWHERE, bad())
    assert len([one for one in five if one.round == 2]) == 2  # e and a good one, and two more


def test_a_pair_without_an_answer_is_not_asked_again_and_its_nodes_are_measured_with_others():
    pairs = next_round("abcd", NOWHERE, seen("a?b c-d"))
    assert pairs == (("a", "c"), ("b", "d"))
    assert conclude("abcd", NOWHERE, seen("a?b c-d | a-c b-d")).clear


def test_nobody_is_paired_twice_with_the_same():
    measured = run("abcdef", NOWHERE, bad("a", "b", "c"))
    assert len({frozenset(one.nodes) for one in measured}) == len(measured)


def test_after_three_more_rounds_it_ends():
    assert max(one.round for one in run("abcdefgh", NOWHERE, bad(*"abcdefgh"))) == MOST_ROUNDS
    assert next_round("abcdefgh", NOWHERE, seen("a!b c-d | | | a!c")) == ()


def test_one_node_or_none_has_no_round():
    assert next_round("a", NOWHERE, ()) == ()
    assert next_round("", NOWHERE, ()) == ()
    assert conclude("", NOWHERE, ()).clear
    assert conclude("a", NOWHERE, ()).sentences == ("a was not measured with any other node.",)


# --- a node --------------------------------------------------------------------------------------


def test_a_node_that_fails_with_every_partner_is_named():
    findings = found("abcdefgh", NOWHERE, bad("c"))
    assert names(findings) == ["c"]
    assert not findings.links
    assert not findings.groups
    assert not findings.undecided
    assert findings.good == tuple("abdefgh")
    assert findings.sentences == (
        "c is at fault: it failed with every partner, with 3 that are good with others: a,b,d.",
    )


def test_one_good_partner_does_not_name_a_node():
    findings = conclude("abcd", NOWHERE, seen("a!b c-d | b-c"))
    assert names(findings) == []
    assert findings.undecided[0].nodes == ("a",)
    assert "a failed with b, which is good, and had no second good node" in findings.sentences[0]


def test_a_node_that_ran_well_once_is_not_named():
    findings = conclude("abcd", NOWHERE, seen("a!b c-d | a!c b-d | a-d b-c"))
    assert names(findings) == []
    assert [one.nodes for one in findings.links] == [("a", "b"), ("a", "c")]


def test_partners_that_are_not_known_to_be_good_name_nobody():
    findings = conclude("abcd", NOWHERE, seen("a!b c!d | a!c b!d | a!d b!c"))
    assert names(findings) == []
    assert findings.undecided[0].nodes == tuple("abcd")


def test_two_bad_nodes_that_met_each_other_are_both_named():
    assert names(found("abcdef", NOWHERE, bad("a", "b"))) == ["a", "b"]


@pytest.mark.parametrize("nodes", ["abc", "abcd", "abcde", "abcdef", "abcdefg"])
@pytest.mark.parametrize("position", range(3))
def test_one_bad_node_of_few_is_named(nodes, position):
    findings = found(nodes, NOWHERE, bad(nodes[position]))
    assert names(findings) == [nodes[position]]
    assert not findings.undecided


def test_a_node_is_not_named_for_a_boundary_that_nothing_crossed():
    # c1 is the only node of leaf3 under test: it, or its switch.
    nodes = (*TWELVE[:8], "c1")
    findings = found(nodes, LEAVES, bad("c1"))
    assert names(findings) == []
    assert findings.undecided[0].nodes == ("c1",)
    assert findings.undecided[0].labels == ("switch leaf3",)


def test_a_referee_of_its_switch_tells_it_from_the_switch():
    nodes = (*TWELVE[:8], "c1")
    assert names(found(nodes, LEAVES, bad("c1"), referees=("c2", "c3"))) == []
    findings = found((*nodes, "c2", "c3"), LEAVES, bad("c1"))
    assert names(findings) == ["c1"]


# --- two nodes -----------------------------------------------------------------------------------


def test_two_nodes_alone_stay_one_of_two():
    findings = found("ab", NOWHERE, bad("a"))
    assert not findings.nodes
    assert not findings.links
    assert findings.undecided[0].nodes == ("a", "b")
    assert findings.sentences == (
        "a,b failed with each other, and none ran with a node that is known to be good: one of "
        "them, or more, or what is between them.",
    )


def test_two_nodes_with_a_referee_are_told_apart():
    for fault, expected in (("a", ["a"]), ("b", ["b"])):
        measured = run("ab", NOWHERE, bad(fault), referees=("r",))
        one = conclude("ab", NOWHERE, measured)
        # With one referee the other is known to be good, and it has one good partner more.
        assert names(one) == expected
        assert names(found("ab", NOWHERE, bad(fault), referees=("r", "s"))) == expected


def test_a_link_between_two_is_named_with_a_referee():
    findings = found("ab", NOWHERE, link("ab"), referees=("r",))
    assert [one.nodes for one in findings.links] == [("a", "b")]
    assert not findings.nodes
    assert not findings.undecided


def test_a_bad_referee_accuses_nobody():
    assert names(found("ab", NOWHERE, bad("a", "r"), referees=("r",))) == []
    assert names(found("ab", NOWHERE, bad("a", "r"), referees=("r", "s"))) in (
        [],
        ["a"],
        ["a", "r"],
    )


def test_referees_are_left_alone_where_good_nodes_are_known():
    measured = run("abcdef", NOWHERE, bad("a"), referees=("r",))
    assert not [one for one in measured if "r" in one.nodes]


# --- a link --------------------------------------------------------------------------------------


def test_a_link_between_two_good_nodes_is_named():
    findings = found("abcdefgh", NOWHERE, link("cd"))
    assert [one.nodes for one in findings.links] == [("c", "d")]
    assert not findings.nodes
    assert not findings.undecided
    assert findings.sentences[0].startswith("The link between c and d is at fault")


def test_a_link_across_a_boundary_is_told_from_the_boundary():
    first = next(pair for pair in next_round(TWELVE, LEAVES, ()) if pair[0][0] != pair[1][0])
    findings = found(TWELVE, LEAVES, link(first))
    assert [one.nodes for one in findings.links] == [first]
    assert not findings.groups
    assert not findings.undecided


def test_a_link_is_not_named_while_nothing_crossed_the_boundary():
    findings = conclude(TWELVE[:8], LEAVES, seen("a1!b1 a1-a2 b1-b2 a3-a4 b3-b4"))
    assert not findings.links
    assert not findings.groups
    assert findings.undecided[0].labels == ("switch leaf1", "switch leaf2")


# --- a group -------------------------------------------------------------------------------------


def test_a_switch_that_nothing_gets_out_of_is_named():
    leaf2 = TWELVE[4:8]
    findings = found(TWELVE, LEAVES, out_of(leaf2))
    assert [group.labels for group in findings.groups] == [("switch leaf2",)]
    assert findings.groups[0].inside
    assert findings.groups[0].nodes == leaf2
    assert not findings.nodes
    assert not findings.links
    assert not findings.undecided
    assert "What leads out of switch leaf2 is at fault" in findings.sentences[0]


def test_a_bad_node_behind_a_lost_switch_is_named_too():
    findings = found(TWELVE, LEAVES, either(out_of(TWELVE[4:8]), bad("b3")))
    assert [group.labels for group in findings.groups] == [("switch leaf2",)]
    assert names(findings) == ["b3"]
    assert not findings.undecided


def test_of_two_groups_that_are_all_there_is_both_are_named():
    findings = found(TWELVE[:8], LEAVES, out_of(TWELVE[:4]))
    assert [group.labels for group in findings.groups] == [("switch leaf1", "switch leaf2")]
    assert not findings.undecided


def test_a_group_is_not_named_for_two_pairs():
    text = "a1-a2 b1-b2 a3-a4 b3-b4 c1-c2 c3-c4 | b1-c1 b2-c2 a1!b3 a2!b4"
    assert not conclude(TWELVE, LEAVES, seen(text)).groups
    assert conclude(TWELVE, LEAVES, seen(f"{text} a3!c3")).groups


def test_a_group_is_not_named_for_pairs_of_one_of_its_nodes():
    text = "a1-a2 b1-b2 b3-b4 c1-c2 c3-c4 | b1-c1 | a1!b3 | a1!b4 | a1!c3"
    assert not conclude(TWELVE, LEAVES, seen(text)).groups


def test_a_group_is_not_named_once_a_pair_crossed_its_boundary_well():
    text = "a1-a2 b1-b2 a3-a4 b3-b4 c1-c2 c3-c4 | b1-c1 a1!b3 a2!b4 a3!c3 a4-c4"
    findings = conclude(TWELVE, LEAVES, seen(text))
    assert not findings.groups
    assert len(findings.links) == 3


def test_a_group_is_not_named_for_nodes_that_are_not_known_to_be_good():
    # Everything that leads out of leaf1 fails, and nothing inside it was measured.
    text = "b1-b2 b3-b4 c1-c2 c3-c4 | b1-c1 a1!b3 a2!b4 a3!c3 a4!c4"
    findings = conclude(TWELVE, LEAVES, seen(text))
    assert not findings.groups
    assert not findings.nodes
    assert findings.undecided[0].nodes == ("a1", "a2", "a3", "a4")
    assert findings.undecided[0].labels == ("switch leaf1",)


LARGE = Topology.of([("switch", {f"leaf{n}": [f"{n}{k:02}" for k in range(8)] for n in range(8)})])
SIXTY_FOUR = tuple(
    node for level in LARGE.levels for group in level.groups.values() for node in group
)


def test_a_switch_at_which_nothing_runs_is_named_as_a_whole():
    leaf = SIXTY_FOUR[8:16]
    findings = found(SIXTY_FOUR, LARGE, bad(*leaf))
    assert [(group.labels, group.inside) for group in findings.groups] == [
        (("switch leaf1",), False)
    ]
    assert findings.groups[0].nodes == leaf
    assert not findings.nodes
    assert not findings.undecided
    assert "as a whole: each of its 8 nodes ([100-107])" in findings.sentences[0]


def test_a_switch_with_one_good_node_is_no_whole():
    leaf = SIXTY_FOUR[8:16]
    findings = found(SIXTY_FOUR, LARGE, bad(*leaf[1:]))
    assert not findings.groups
    assert names(findings) == list(leaf[1:])


def test_a_few_bad_nodes_that_are_all_of_a_switch_may_be_so_by_themselves():
    small = Topology.of([("switch", {f"leaf{n}": [f"{n}a", f"{n}b"] for n in range(8)})])
    nodes = tuple(f"{n}{k}" for n in range(8) for k in "ab")
    findings = found(nodes, small, bad("0a", "0b", "1a", "2a", "3a", "4a"))
    assert not [group for group in findings.groups if not group.inside]
    assert {"0a", "0b"} <= {node for one in findings.undecided for node in one.nodes}


THIRTY_TWO = tuple(f"{n}{k}" for n in range(8) for k in "abcd")
PODS = Topology.of(
    [
        ("switch", {f"leaf{n}": [f"{n}{k}" for k in "abcd"] for n in range(8)}),
        ("rack", {f"rack{n}": THIRTY_TWO[8 * n : 8 * n + 8] for n in range(4)}),
    ]
)


def test_a_larger_group_is_told_from_those_inside_it():
    findings = found(THIRTY_TWO, PODS, out_of(THIRTY_TWO[8:16]))
    assert [group.labels for group in findings.groups] == [("rack rack1",)]
    assert not findings.nodes
    assert not findings.links
    assert not findings.undecided


def test_a_smaller_group_is_told_from_the_one_around_it():
    findings = found(THIRTY_TWO, PODS, out_of(THIRTY_TWO[8:12]))
    assert [group.labels for group in findings.groups] == [("switch leaf2",)]
    assert not findings.nodes
    assert not findings.links
    assert not findings.undecided


def test_where_no_part_gets_to_another_it_is_what_is_above_them():
    leaves = [THIRTY_TWO[8:12], THIRTY_TWO[12:16]]
    findings = found(THIRTY_TWO, PODS, out_of(*leaves))
    assert [(group.labels, group.parts) for group in findings.groups] == [
        (("rack rack1",), ("switch leaf2", "switch leaf3"))
    ]
    assert not findings.nodes
    assert not findings.links
    assert not findings.undecided
    assert (
        "rack rack1, which joins switch leaf2, switch leaf3, is at fault" in findings.sentences[0]
    )


def test_a_part_that_only_met_another_that_is_cut_off_may_be_good():
    inside = " ".join(f"{number}a-{number}b {number}c-{number}d" for number in range(8))
    others = "0a-1a 0b-4a 1b-6a 4b-5b 6b-7b 5c-7c"
    text = f"{inside} | {others} | 2a!3a 2b!3b 2c!3c 2d!0a 3d!4a | 2a!0b"
    assert not conclude(THIRTY_TWO, PODS, seen(text)).groups
    findings = conclude(THIRTY_TWO, PODS, seen(f"{text} 3a!4b"))
    assert [group.labels for group in findings.groups] == [("rack rack1",)]


def test_where_nothing_gets_anywhere_it_is_what_joins_all():
    findings = found(TWELVE, LEAVES, out_of(TWELVE[:4], TWELVE[4:8], TWELVE[8:]))
    assert [group.labels for group in findings.groups] == [
        ("switch leaf1", "switch leaf2", "switch leaf3")
    ]
    assert findings.sentences[0].startswith("What joins switch leaf1, switch leaf2, switch leaf3")


def test_groups_of_the_same_nodes_are_named_together():
    same = Topology.of(
        [("switch", LEAVES.levels[0].groups), ("rack", {"rack7": ["a1", "a2", "a3", "a4"]})]
    )
    findings = found(TWELVE, same, out_of(TWELVE[:4]))
    assert [set(group.labels) for group in findings.groups] == [{"switch leaf1", "rack rack7"}]


def test_levels_need_not_lie_within_each_other():
    crossing = Topology.of(
        [
            ("switch", LEAVES.levels[0].groups),
            ("rack", {f"rack{n}": [f"{leaf}{n}" for leaf in "abc"] for n in (1, 2, 3, 4)}),
        ]
    )
    assert found(TWELVE, crossing, bad()).clear
    for group in (TWELVE[:4], ("a2", "b2", "c2")):
        findings = found(TWELVE, crossing, out_of(group))
        assert [found.nodes for found in findings.groups] == [tuple(group)]
        assert not findings.nodes
        assert not findings.links
        assert not findings.undecided


# --- what is not known ---------------------------------------------------------------------------


def test_what_was_not_measured_is_not_clear():
    findings = conclude("abcd", NOWHERE, seen("a-b"))
    assert not findings.clear
    assert findings.undecided[0].nodes == ("c", "d")
    assert findings.sentences == ("c,d were not measured with any other node.",)
    assert not conclude("abcd", NOWHERE, seen("a-b c?d")).clear
    assert not conclude("abcd", NOWHERE, ()).clear


def test_a_boundary_that_was_not_crossed_is_not_clear():
    findings = conclude(TWELVE[:8], LEAVES, seen("a1-a2 a3-a4 b1-b2 b3-b4"))
    assert not findings.clear
    assert findings.undecided[0].labels in (("switch leaf1",), ("switch leaf1", "switch leaf2"))


def test_a_boundary_that_was_not_crossed_is_asked_for():
    pairs = next_round(TWELVE[:8], LEAVES, seen("a1-a2 a3-a4 b1-b2 b3-b4"))
    assert pairs
    assert all(one[0] != other[0] for one, other in pairs)


def test_more_than_half_bad_accuses_no_good_node():
    nodes = [f"n{number:02}" for number in range(40)]
    faulty = nodes[:25]
    findings = found(nodes, NOWHERE, bad(*faulty))
    assert set(names(findings)) <= set(faulty)
    told = {*names(findings), *(node for one in findings.undecided for node in one.nodes)}
    assert set(faulty) <= told


def test_where_nothing_runs_nothing_is_named():
    findings = found(TWELVE, LEAVES, bad(*TWELVE))
    assert not findings.nodes
    assert not findings.links
    assert not findings.groups
    assert [one.nodes for one in findings.undecided] == [tuple(sorted(TWELVE))]


def test_a_group_that_ran_well_proves_its_nodes_and_boundaries():
    whole = (Seen(TWELVE, True, 1),)
    assert conclude(TWELVE, LEAVES, whole).clear
    assert not conclude(TWELVE, LEAVES, (Seen(TWELVE, None, 1),)).clear
    assert not conclude(TWELVE, LEAVES, (Seen(TWELVE, False, 1),)).clear


# --- ramps ---------------------------------------------------------------------------------------


def test_a_ramp_doubles_inside_switches_first_and_drops_nobody():
    steps = localise.ramp(TWELVE, LEAVES)
    assert [len(step) for step in steps] == [6, 3, 2, 1]
    assert set(steps[1]) == {TWELVE[:4], TWELVE[4:8], TWELVE[8:]}
    for step in steps:
        assert sorted(node for group in step for node in group) == sorted(TWELVE)
    mixed = localise.ramp(("a1", "b1", "a2", "b2"), LEAVES)
    assert set(mixed[0]) == {("a1", "a2"), ("b1", "b2")}


@pytest.mark.parametrize("count", range(8))
def test_every_step_of_a_ramp_has_every_node(count):
    nodes = tuple("abcdefgh"[:count])
    for step in localise.ramp(nodes, NOWHERE):
        assert tuple(node for group in step for node in group) == nodes
        assert all(len(group) > 1 for group in step)
    assert localise.ramp(nodes, NOWHERE)[-1:] == (((nodes,),) if count > 1 else ())


def narrowed(group, fails):
    """All of the narrowing; `fails` says of a group whether it does."""
    measured: list[Seen] = []
    rounds = 0
    while True:
        run_next, where = localise.narrow(group, NOWHERE, measured)
        if not run_next:
            return where, rounds
        rounds += 1
        measured += [Seen(members, not fails(members), rounds) for members in run_next]


def test_a_failing_group_is_narrowed_to_pairs():
    where, rounds = narrowed("abcdefgh", lambda members: "c" in members)
    assert [(one.nodes, one.halves_good) for one in where] == [(("c", "d"), False)]
    assert rounds == 2


def test_both_failing_halves_are_narrowed():
    where, _ = narrowed("abcdefgh", lambda members: "c" in members or "h" in members)
    assert [one.nodes for one in where] == [("c", "d"), ("g", "h")]


def test_what_shows_at_a_size_only_is_told_so():
    where, _ = narrowed("abcdefgh", lambda members: len(members) > 4)
    assert [(one.nodes, one.halves_good) for one in where] == [(tuple("abcdefgh"), True)]
    assert "each half of them alone is good" in where[0].sentence


def test_a_half_without_an_answer_is_not_good():
    measured = (Seen(tuple("abcd"), None, 1), Seen(tuple("efgh"), True, 1))
    run_next, where = localise.narrow("abcdefgh", NOWHERE, measured)
    assert where == ()
    assert run_next == (tuple("abcd"),)


# --- rails ---------------------------------------------------------------------------------------

RAILS = ("mlx5_0", "mlx5_1", "mlx5_2")


def rails(nodes, fails):
    return localise.by_rail(
        nodes,
        NOWHERE,
        {
            rail: run(nodes, NOWHERE, lambda one, other, rail=rail: fails(rail, one, other))
            for rail in RAILS
        },
    )


def test_one_hca_of_one_node_is_named():
    found = rails("abcdef", lambda rail, one, other: rail == "mlx5_1" and "c" in (one, other))
    assert [(hca.node, hca.rail) for hca in found.hcas] == [("c", "mlx5_1")]
    assert found.sentences == (
        "mlx5_1 of c is at fault: it failed with every partner, and the node's other rails are "
        "good.",
    )


def test_a_node_that_fails_over_every_rail_is_the_node():
    found = rails("abcdef", lambda rail, one, other: "c" in (one, other))
    assert [node.name for node in found.nodes] == ["c"]
    assert not found.hcas
    assert not found.lost
    assert not found.rest


def test_a_rail_over_which_nothing_runs_is_the_rail():
    found = rails("abcdef", lambda rail, one, other: rail == "mlx5_2")
    assert found.lost == ("mlx5_2",)
    assert not found.nodes
    assert not found.hcas
    assert not found.rest


def test_of_two_nodes_one_hca_is_enough_and_the_rail_is_not_named():
    found = rails("ab", lambda rail, one, other: rail == "mlx5_2")
    assert not found.lost
    assert list(found.rest) == ["mlx5_2"]


def test_a_rail_without_answers_is_not_lost_and_not_clear():
    well = run("abcdef", NOWHERE, bad())
    found = localise.by_rail("abcdef", NOWHERE, {"mlx5_0": well, "mlx5_1": ()})
    assert not found.lost
    assert not found.clear
    with pytest.raises(ValueError, match="no rail was measured"):
        localise.by_rail("abcdef", NOWHERE, {})


def test_a_link_over_one_rail_is_told_with_the_rail():
    found = rails(
        "abcdef", lambda rail, one, other: rail == "mlx5_0" and {one, other} == {"a", "b"}
    )
    assert found.sentences[0].startswith("Over mlx5_0: The link between a and b")


# --- the declaration -----------------------------------------------------------------------------


def declared(*places, **switches):
    nodes = {
        f"gpu{number}": Node(f"gpu{number}", 4, 100, Gpus("none", 0), "ethernet", (), (), *place)
        for number, place in enumerate(places, 1)
    }
    return Declaration(
        *("test", ("login1",), (), "/usr/bin/python3"),
        (Partition("all", tuple(nodes), True),),
        nodes,
        switches={name: tuple(below) for name, below in switches.items()},
    )


def test_the_topology_is_that_of_the_declaration():
    topology = Topology.declared(
        declared(
            ("l1", "r1"), ("l1", "r1"), ("l2", "r1"), ("l2", "r2"), ("l3", ""), ("", ""),
            s1=["l1", "l2"], core=["s1", "l3"],
        )
    )  # fmt: skip
    groups = {
        f"{level.name} {name}": nodes
        for level in topology.levels
        for name, nodes in level.groups.items()
    }
    assert groups == {
        "switch l1": ("gpu1", "gpu2"),
        "switch l2": ("gpu3", "gpu4"),
        "switch l3": ("gpu5",),
        "rack r1": ("gpu1", "gpu2", "gpu3"),
        "rack r2": ("gpu4",),
        "switch s1": ("gpu1", "gpu2", "gpu3", "gpu4"),
        "switch core": ("gpu1", "gpu2", "gpu3", "gpu4", "gpu5"),
    }
    assert [level.name for level in topology.levels] == ["switch", "rack", "switch", "switch"]


def test_without_places_there_is_no_topology():
    assert Topology.declared(declared(("", ""), ("", ""))) == Topology()
