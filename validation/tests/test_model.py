"""What counts as a pass, and what never does."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.model import (
    EXIT_CODES,
    Gpus,
    Metric,
    Node,
    PlannedCheck,
    Result,
    Subject,
    Threshold,
    Tier,
    Verdict,
    node_reports,
    overall,
    printable,
    settle,
    worst,
)

GPU1 = Subject.node("gpu1")
LIMIT = Threshold("≥", 10.0, "GB/s", "derived", "test", warn=11.0)


def planned(name, skip=None):
    return PlannedCheck(name, Tier.NODE, GPU1, skip)


def result(name, verdict, subject=GPU1, tier=Tier.NODE):
    return Result(name, tier, subject, verdict, "because", Metric("x", 1), LIMIT)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (9.999, Verdict.FAIL),
        (10.0, Verdict.WARN),
        (10.999, Verdict.WARN),
        (11.0, Verdict.PASS),
        (math.inf, Verdict.FAIL),
        (math.nan, Verdict.FAIL),
        ("12", Verdict.FAIL),
    ],
)
def test_the_edges_of_a_lower_threshold(value, verdict):
    assert LIMIT.judge(value) is verdict


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.5, Verdict.PASS), (0.51, Verdict.WARN), (1.0, Verdict.WARN), (1.01, Verdict.FAIL)],
)
def test_the_edges_of_an_upper_threshold(value, verdict):
    assert Threshold("≤", 1.0, "s", "derived", "test", warn=0.5).judge(value) is verdict


def test_an_unknown_comparison_passes_nothing():
    assert Threshold("~", 1.0, "s", "derived", "test").judge(1.0) is Verdict.FAIL


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.WARN])
def test_a_pass_without_value_and_threshold_cannot_be_made(verdict):
    with pytest.raises(ValueError, match="needs a value and a threshold"):
        Result("cpus", Tier.NODE, GPU1, verdict)


def test_a_planned_check_without_a_result_fails_the_run():
    plans = [planned("cpus"), planned("memory")]
    assert overall(plans, [result("cpus", Verdict.PASS)]) is Verdict.FAIL
    assert [r.verdict for r in settle(plans, [result("cpus", Verdict.PASS)])] == [
        Verdict.PASS,
        Verdict.FAIL,
    ]


def test_a_skip_needs_a_declaration():
    assert overall([planned("cpus")], [result("cpus", Verdict.SKIP)]) is Verdict.FAIL
    plans = [planned("cpus"), planned("ddp", skip="one rank")]
    results = [result("cpus", Verdict.PASS), result("ddp", Verdict.SKIP)]
    assert overall(plans, results) is Verdict.PASS


def test_a_run_that_judged_nothing_is_inconclusive():
    assert overall([], []) is Verdict.INCONCLUSIVE
    skipped = [planned("ddp", skip="one rank")]
    assert overall(skipped, [result("ddp", Verdict.SKIP)]) is Verdict.INCONCLUSIVE


def test_of_two_results_for_one_check_the_worse_counts():
    results = [result("cpus", Verdict.FAIL), result("cpus", Verdict.PASS)]
    assert overall([planned("cpus")], results) is Verdict.FAIL
    assert overall([planned("cpus")], results[::-1]) is Verdict.FAIL


def test_a_result_that_nobody_planned_counts_too():
    results = [result("cpus", Verdict.PASS), result("extra", Verdict.FAIL)]
    assert overall([planned("cpus")], results) is Verdict.FAIL


def test_what_outweighs_what():
    order = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.WARN, Verdict.PASS]
    for index, verdict in enumerate(order):
        assert worst(order[index:]) is verdict
    assert [EXIT_CODES[verdict] for verdict in order] == [1, 3, 0, 0]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(Verdict)))))
def test_a_run_is_green_only_if_every_planned_check_is(pairs):
    plans = [planned(name) for name in "abc"]
    results = [result(name, verdict) for name, verdict in pairs]
    verdict = overall(plans, results)
    mine = {plan.check: [v for name, v in pairs if name == plan.check] for plan in plans}
    every_one_green = all(seen and all(v.green for v in seen) for seen in mine.values())
    assert verdict.green == every_one_green


def test_a_node_passes_only_with_everything_it_has_a_part_in():
    nodes = [Node(name, 2, 2000, Gpus("virtual", 2), "ethernet") for name in ("gpu1", "gpu2")]
    both = Subject("virtual", ("gpu1", "gpu2"))
    results = [result("cpus", Verdict.PASS)]
    good, unknown = node_reports(nodes, {}, results)
    assert good.passing
    assert not unknown.passing
    assert unknown.reason == "nothing was judged"
    results.append(result("ddp", Verdict.FAIL, both, Tier.CLUSTER))
    first, _ = node_reports(nodes, {}, results)
    assert not first.passing
    assert first.own_failures == ()
    assert first.reason == "ddp: because"


@given(st.text())
def test_printable_is_one_harmless_line(text):
    line = printable(text, 40)
    assert len(line) <= 40
    assert line.isprintable()
