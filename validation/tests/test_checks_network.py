"""Names that lead elsewhere, and large packets that get lost: who is told, and who accused."""

import pytest

from validation.checks import network
from validation.checks.comparison import ComparedNode
from validation.model import Outcome, Reply, Verdict
from validation.tests import standin
from validation.tests.conftest import make_plan
from validation.tests.judging import assert_told, changed, rules_of

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def names(count):
    return [f"gpu{number}" for number in range(1, count + 1)]


def compared(count, *changes, silent=()):
    """By node, the results of so many nodes; `changes` are (node, other node, field, value)."""
    plan = make_plan(*((name, "virtual", 2) for name in names(count)))
    members = []
    for job in plan.node_jobs:
        (host,) = job.hosts
        asked = job.config["other_nodes"]
        places = [
            (("measured", "network", "ways", asked.index(other), field), value)
            for node, other, field, value in changes
            if node == host and other in asked
        ]
        text = standin.line(changed(standin.node(host, job.config), *places))
        reply = Reply(job.name, Outcome.EXITED, 0, "17", text)
        given = None if host in silent else reply
        members.append(ComparedNode(job, given, rules_of(job.nodes[0].hardware)))
    results = network.compare(members)
    for result in results:
        assert_told(result)
    return {result.subject.name: result for result in results}


def verdicts(results):
    return {name: result.verdict for name, result in results.items()}


def lost(*pairs):
    return [(one, other, "large", False) for one, other in pairs]


def only(count, **others):
    return {**dict.fromkeys(names(count), PASS), **others}


def test_nodes_that_reach_each_other_pass():
    assert verdicts(compared(4)) == only(4)


@pytest.mark.parametrize("count", [2, 3, 12])
def test_a_wrong_address_is_the_fault_of_the_node_that_has_it(count):
    results = compared(count, ("gpu2", "gpu1", "addresses", "192.0.2.77"))
    assert verdicts(results) == only(count, gpu2=FAIL)
    assert results["gpu2"].message == "it has 192.0.2.77 for gpu1, which has 192.0.2.1"
    assert results["gpu2"].blamed is None


def test_so_is_a_name_without_an_address():
    missing = [("gpu2", "gpu1", "addresses", ""), ("gpu2", "gpu1", "error", "Name not known")]
    results = compared(3, *missing)
    assert verdicts(results) == only(3, gpu2=FAIL)
    assert results["gpu2"].message == (
        "it has no address (Name not known) for gpu1, which has 192.0.2.1"
    )


def test_a_name_that_is_wrong_everywhere_is_the_fault_of_its_node():
    wrong = [(name, "gpu3", "addresses", "127.0.1.1") for name in names(4)]
    results = compared(4, *wrong)
    assert verdicts(results) == only(4, gpu3=FAIL)
    assert results["gpu3"].message == "its name leads 3 nodes to 127.0.1.1; it has 192.0.2.3"


def test_a_node_that_loses_large_packets_with_all_others_is_at_fault():
    pairs = [("gpu1", "gpu2"), ("gpu3", "gpu2"), ("gpu4", "gpu2")]
    results = compared(4, *lost(*pairs))
    assert verdicts(results) == only(4, gpu2=FAIL)
    assert results["gpu2"].message == (
        "packets of 1500 bytes are lost between gpu1 and gpu2, small ones arrive; and 2 more"
    )
    assert results["gpu2"].blamed is None


@pytest.mark.parametrize("count", [2, 3])
def test_of_one_way_that_loses_them_both_ends_are_told_and_none_is_accused(count):
    results = compared(count, *lost(("gpu1", "gpu2")))
    assert verdicts(results) == only(count, gpu1=FAIL, gpu2=FAIL)
    assert results["gpu1"].blamed == results["gpu2"].blamed == ()


def test_a_switch_that_all_packets_cross_accuses_all_of_them():
    pairs = [(one, other) for one in names(3) for other in names(3) if one != other]
    results = compared(3, *lost(*pairs))
    assert set(verdicts(results).values()) == {FAIL}
    assert {result.blamed for result in results.values()} == {()}


def test_no_answer_to_any_packet_says_nothing_of_them():
    pairs = [(one, other) for one in names(2) for other in names(2) if one != other]
    small = [(one, other, "small", False) for one, other in pairs]
    results = compared(2, *small, *lost(*pairs))
    assert verdicts(results) == only(2)
    assert results["gpu1"].message == "only names were judged: no node answered a packet"


def test_one_node_whose_packets_nobody_answers_says_so_alone():
    mute = [("gpu1", other, field, False) for other in names(3)[1:] for field in ("small", "large")]
    results = compared(3, *mute)
    assert verdicts(results) == only(3)
    assert [bool(results[name].message) for name in names(3)] == [True, False, False]


def test_without_others_that_answered_nothing_is_known():
    results = compared(2, ("gpu1", "gpu2", "addresses", "192.0.2.77"), silent={"gpu2"})
    assert verdicts(results) == {"gpu1": UNKNOWN}
    assert results["gpu1"].message == "no other node answered"


def test_every_node_is_asked_for_its_next_ones_and_the_first():
    assert network.others("gpu2", names(3)) == ["gpu3", "gpu1"]
    assert network.others("gpu1", names(1)) == []
    many = names(1000)
    asked = {name: network.others(name, many) for name in many}
    assert asked["gpu500"] == [*(f"gpu{number}" for number in range(501, 509)), "gpu1"]
    assert asked["gpu1000"] == names(8)
    assert max(map(len, asked.values())) == network.NEXT + 1


def test_one_node_alone_has_nothing_to_reach():
    (planned,) = [
        check for check in make_plan(("gpu1", "virtual", 2)).checks if check.check == "network"
    ]
    assert planned.skip == "there is no other node to reach"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "gpu7", "not those of gpu2"),
        ("small", False, "a large packet came where no small one did"),
        ("error", "Name not known", "either addresses or a reason"),
    ],
)
def test_an_answer_that_contradicts_itself_is_none(field, value, words):
    results = compared(2, ("gpu1", "gpu2", field, value))
    assert results["gpu1"].verdict is FAIL
    assert words in results["gpu1"].message
