"""What is written of a cluster is what is read of it; what is no declaration: validation/tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.declaration import (
    Container,
    Declaration,
    Gpus,
    Node,
    Partition,
    Submission,
    parse,
    plain,
)
from cluster.errors import DataError

NODES = (
    Node("cpu1", 4, 2000, Gpus("none", 0), "ethernet"),
    Node("gpu1", 8, 4000, Gpus("virtual", 2, nvml=True), "ethernet", (("A", "1"), ("B", "2"))),
    Node(
        *("gpu2", 8, 4000, Gpus("h100_sxm", 8, mig=(("1g.10gb", 4), ("3g.40gb", 1)))),
        *("ib_ndr400", (), ("/home", "/scratch")),
    ),
    Node("gpu3", 8, 4000, Gpus("h100_sxm", 8, gres="gpu:half:16"), "ib_ndr400"),
    Node("gpu4", 8, 4000, Gpus("none", 0), "ethernet", switch="leaf1", rack="Hall 2, rack 7"),
)
WISHES = Submission(
    account="ops", srun_options=("--comment=test",), container_image="/images/torch.sqsh"
)


@pytest.mark.parametrize("submission", [Submission(), WISHES])
def test_what_is_written_reads_back_the_same(submission: Submission) -> None:
    declared = Declaration(
        *("plumbline", ("login1",), ("ctl1", "ctl2"), "/opt/plumbline/bin/python"),
        (
            Partition("all", ("cpu1", "gpu1", "gpu2", "gpu3", "gpu4"), True),
            Partition("a", ("cpu1",), False),
        ),
        {node.name: node for node in NODES},
        submission,
        {"spine1": ("leaf1",), "core": ("spine1",)},
    )
    assert parse(json.loads(json.dumps(plain(declared))), "test") == declared


def test_a_container_has_a_python_of_its_own() -> None:
    assert WISHES.container == Container("/images/torch.sqsh", None, "python3")


def with_places(switches: object, **places: object) -> dict[str, Any]:
    """A declaration of gpu1, gpu2 … with what each is at: "leaf1/rack1", or nothing."""
    nodes = [
        {"name": name, "cpus": 1, "memory_mb": 1, "gpus": {"count": 0}, "fabric": "ethernet"}
        | (place if isinstance(place, dict) else {"switch": place} if place else {})
        for name, place in places.items()
    ]
    return {
        **{"schema": 1, "cluster": "c", "controller": ["ctl1"], "login": [], "python": "/python"},
        "partitions": [{"name": "all", "nodes": list(places), "default": True}],
        "nodes": nodes,
        **({} if switches is None else {"switches": switches}),
    }


def test_a_declaration_without_places_reads_as_before() -> None:
    declared = parse(with_places(None, gpu1="", gpu2=""), "test")
    assert declared.switches == {}
    assert [(node.switch, node.rack) for node in declared.nodes.values()] == [("", ""), ("", "")]
    written = plain(declared)
    assert "switches" not in written
    assert not {"switch", "rack"} & set(written["nodes"][0])


@pytest.mark.parametrize(
    ("switches", "sentence"),
    [
        ({"spine": ["leaf1", "leaf9"]}, "switches.spine: leaf9 is no other switch, and no node"),
        ({"a": ["leaf1"], "b": ["leaf1"]}, "switches: leaf1 is below two"),
        ({"leaf1": ["leaf2"]}, "switches.leaf1: nodes are at leaf1; a switch has nodes or"),
        ({"a": ["b"], "b": ["a"]}, "switches.a: is below itself"),
        ({"a": ["leaf1"], "b": ["b"]}, "switches.b: is below itself"),
        ({"spine": []}, "switches.spine: must not be empty"),
        ({"spine": "leaf1"}, "switches.spine: expected a list, found 'leaf1'"),
        (["leaf1"], "switches: expected a mapping, found ['leaf1']"),
        ({"spine": [7]}, "switches.spine[0]: expected a text, found 7"),
    ],
)
def test_switches_that_are_no_tree_are_refused(switches: object, sentence: str) -> None:
    with pytest.raises(DataError) as refused:
        parse(with_places(switches, gpu1="leaf1", gpu2="leaf2"), "test")
    assert any(problem.startswith(sentence) for problem in refused.value.problems)


@pytest.mark.parametrize("place", [{"switch": 7}, {"rack": ""}, {"switch": ["leaf1"]}])
def test_a_place_is_a_text(place: dict[str, object]) -> None:
    (key,) = place
    with pytest.raises(DataError, match=rf"nodes\[0\]\.{key}: expected a text"):
        parse(with_places(None, gpu1=place), "test")


def test_racks_may_be_what_switches_are_above() -> None:
    declared = parse(with_places({"top": ["r1", "leaf2"]}, a={"rack": "r1"}, b="leaf2"), "test")
    assert declared.switches == {"top": ("r1", "leaf2")}
