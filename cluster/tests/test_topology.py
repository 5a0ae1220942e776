"""topology.conf, from the racks and switches of declared nodes."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.slurm import topology as t

TREE = {"plugin": "tree"}
BLOCK = {"plugin": "block", "block_sizes": [2, 4]}


def nodes(**places: str) -> list[dict[str, Any]]:
    """`gpu1="leaf1/rack1"`: nodes at a switch and in a rack; "" is neither."""
    entries = []
    for name, place in places.items():
        switch, _, rack = place.partition("/")
        entries.append({"name": name, "switch": switch, "rack": rack})
    return entries


FOUR = nodes(gpu1="leaf1/a", gpu2="leaf1/a", gpu3="leaf2/b", gpu4="leaf2/b")


def test_without_a_topology_there_is_no_file() -> None:
    assert t.lines({}, FOUR) == []
    assert t.settings({}) == {}
    assert t.problems({}, nodes(gpu1="")) == []


def test_leaves_have_the_nodes_that_name_them_and_one_switch_joins_them() -> None:
    assert t.lines(TREE, FOUR) == [
        "SwitchName=leaf1 Nodes=gpu[1-2]",
        "SwitchName=leaf2 Nodes=gpu[3-4]",
        "SwitchName=top Switches=leaf[1-2]",
    ]
    assert t.settings(TREE) == {"TopologyPlugin": "topology/tree"}
    assert t.problems(TREE, FOUR) == []


def test_one_leaf_needs_nothing_above_it() -> None:
    assert t.lines(TREE, FOUR[:2]) == ["SwitchName=leaf1 Nodes=gpu[1-2]"]
    assert t.problems({**TREE, "switches": {}}, FOUR[:2]) == []


def test_switches_above_are_host_lists_or_lists_of_them() -> None:
    many = nodes(n1="l1", n2="l2", n3="l3", n4="x")
    declared = {**TREE, "switches": {"s1": "l[1-2]", "s2": ["l3", "x"], "core": ["s[1-2]"]}}
    assert t.lines(declared, many)[4:] == [
        "SwitchName=s1 Switches=l[1-2]",
        "SwitchName=s2 Switches=l3,x",
        "SwitchName=core Switches=s[1-2]",
    ]
    assert t.problems(declared, many) == []


def test_racks_are_leaves_and_switches_blocks_where_a_site_says_so() -> None:
    assert t.lines({**TREE, "from": "rack"}, FOUR)[0] == "SwitchName=a Nodes=gpu[1-2]"
    assert t.lines({**BLOCK, "from": "switch"}, FOUR)[0] == "BlockName=leaf1 Nodes=gpu[1-2]"


def test_blocks_are_the_racks_with_their_sizes() -> None:
    assert t.lines(BLOCK, FOUR) == [
        "BlockName=a Nodes=gpu[1-2]",
        "BlockName=b Nodes=gpu[3-4]",
        "BlockSizes=2,4",
    ]
    assert t.lines({"plugin": "block"}, FOUR)[2:] == []
    assert t.problems(BLOCK, FOUR) == []


def test_a_thousand_nodes_are_a_line_for_each_leaf() -> None:
    many = [{"name": f"gpu{n:04d}", "switch": f"leaf{n // 32:02d}"} for n in range(1000)]
    lines = t.lines(TREE, many)
    assert len(lines) == 33
    assert lines[-1] == "SwitchName=top Switches=leaf[00-31]"
    assert t.problems(TREE, many) == []


def tree(**switches: Any) -> dict[str, Any]:
    return {**TREE, "switches": switches}


def blocks(*sizes: int) -> dict[str, Any]:
    return {**BLOCK, "block_sizes": list(sizes)}


SIZES, SWITCHES = "slurm_topology.block_sizes", "slurm_topology.switches"
PROBLEMS: list[tuple[dict[str, Any], list[dict[str, Any]], str]] = [
    ({"plugin": "ring"}, FOUR, "slurm_topology.plugin is 'ring'; set it to tree or block."),
    (TREE, [*FOUR, *nodes(cpu1="", cpu2="")], "makes a leaf switch of each node_switch, and cpu[1"),
    (BLOCK, [*FOUR, *nodes(cpu1="x")], "makes a block of each node_rack, and cpu1 has none;"),
    (TREE, nodes(gpu1="leaf 1"), "node_switch is 'leaf 1'; name it with letters, digits"),
    ({**TREE, "block_sizes": [2]}, FOUR, f"{SIZES} is nothing of a topology"),
    ({**BLOCK, "switches": {"s": "a"}}, FOUR, f"{SWITCHES} is nothing of a topology"),
    (tree(s="leaf[1-3]"), FOUR, f"{SWITCHES}.s names leaf3, which is no other switch and no"),
    (tree(s="leaf1"), FOUR, f"{SWITCHES} has no switch above leaf2; no job could have nodes there"),
    (tree(s="leaf[1-2]", r="leaf2"), FOUR, f"{SWITCHES} has leaf2 below s and r; a tree has one"),
    (tree(s="leaf1", leaf1="leaf2"), FOUR, f"{SWITCHES} has leaf1, which is the node_switch of"),
    (tree(s="leaf[2-1]"), FOUR, f"{SWITCHES}: the range '2-1'"),
    (tree(s="leaf[1-2],r", r="s"), FOUR, f"{SWITCHES} has s below itself; correct it."),
    ({**TREE, "switches": ["leaf1"]}, FOUR, "is ['leaf1']; write each switch with those below"),
    (blocks(2, 6), FOUR, f"{SIZES} has 6, which is not 2 times a power of two"),
    (blocks(2, 3), FOUR, "has 3, which is not 2 times a power of two"),
    (blocks(0), FOUR, "is [0]; set it to numbers of nodes"),
    (blocks(2), FOUR[:3], "the block b has fewer than 2 nodes, the base size of a block; set"),
    ({"plugin": "block"}, FOUR[:3], "the block b has fewer than 2 nodes"),
]


@pytest.mark.parametrize(("topology", "of", "sentence"), PROBLEMS)
def test_what_is_no_topology_is_one_sentence(
    topology: dict[str, Any], of: list[dict[str, Any]], sentence: str
) -> None:
    (problem,) = t.problems(topology, of)
    assert sentence in problem


def test_switches_above_others_are_those_that_are_declared() -> None:
    declared = {**TREE, "switches": {"s1": "leaf[1-2]", "core": ["s1"]}}
    assert t.above(declared, FOUR) == {"s1": ["leaf1", "leaf2"], "core": ["s1"]}
    assert t.above(TREE, FOUR) == {}  # nobody declared the one that joins them
    assert t.above(BLOCK, FOUR) == {}
    assert t.above({}, FOUR) == {}


def test_switches_that_the_role_refuses_are_above_nothing() -> None:
    assert t.above({**TREE, "switches": {"s1": "leaf[1-9]"}}, FOUR) == {}
    assert t.above({**TREE, "switches": {"s1": "leaf[1-"}}, FOUR) == {}
