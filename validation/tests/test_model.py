"""What counts as a pass, and what never does."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.declaration import Gpus, Node
from cluster.text import printable
from validation import suites
from validation.checks.registry import CHECKS
from validation.model import (
    EXIT_CODES,
    EXIT_USAGE,
    GRANT_LIMIT_S,
    Job,
    JobReport,
    Metric,
    Outcome,
    PlannedCheck,
    Reply,
    Result,
    RunReport,
    Standing,
    Subject,
    Threshold,
    Tier,
    Verdict,
    exit_status,
    node_reports,
    overall,
    settle,
    worst,
)

GPU1 = Subject.node("gpu1")
LIMIT = Threshold("≥", 10.0, "GB/s", "derived", "test", warn=11.0)


def planned(name, skip=None):
    return PlannedCheck(name, Tier.NODE, GPU1, skip)


def result(name, verdict, subject=GPU1, tier=Tier.NODE):
    return Result(name, tier, subject, verdict, "because", Metric("x", 1), LIMIT)


def limit(op, value, warn=None):
    return Threshold(op, value, "", "derived", "test", warn=warn)


AT_MOST = limit("≤", 1.0, warn=0.5)


@pytest.mark.parametrize(
    ("threshold", "value", "verdict"),
    [
        (LIMIT, 9.999, Verdict.FAIL),
        (LIMIT, 10.0, Verdict.WARN),
        (LIMIT, 10.999, Verdict.WARN),
        (LIMIT, 11.0, Verdict.PASS),
        (LIMIT, math.inf, Verdict.FAIL),
        (LIMIT, math.nan, Verdict.FAIL),
        (LIMIT, "12", Verdict.FAIL),
        (AT_MOST, 0.5, Verdict.PASS),
        (AT_MOST, 0.51, Verdict.WARN),
        (AT_MOST, 1.0, Verdict.WARN),
        (AT_MOST, 1.01, Verdict.FAIL),
        (limit("=", 2), 2, Verdict.PASS),
        (limit("=", 2), 3, Verdict.FAIL),
        (limit("=", 2), "two", Verdict.FAIL),
        (limit("=", "two"), "two", Verdict.PASS),
        # Words pass no number, and an unknown comparison nothing.
        (limit("≥", "ten"), 11.0, Verdict.FAIL),
        (limit("≤", "ten"), 11.0, Verdict.FAIL),
        (limit("~", 1.0), 1.0, Verdict.FAIL),
    ],
)
def test_the_edges_of_a_threshold(threshold, value, verdict):
    assert threshold.judge(value) is verdict


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.WARN])
def test_a_pass_without_value_and_threshold_cannot_be_made(verdict):
    with pytest.raises(ValueError, match="needs a value and a threshold"):
        Result("cpus", Tier.NODE, GPU1, verdict)


def test_a_planned_check_without_a_result_fails_the_run():
    plans = [planned("cpus"), planned("memory")]
    assert overall(plans, [result("cpus", Verdict.PASS)]) is Verdict.FAIL
    settled = settle(plans, [result("cpus", Verdict.PASS)])
    assert [item.verdict for item in settled] == [Verdict.PASS, Verdict.FAIL]


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
    assert EXIT_USAGE == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(Verdict)))))
def test_a_run_is_green_only_if_every_planned_check_is(pairs):
    plans = [planned(name) for name in "abc"]
    results = [result(name, verdict) for name, verdict in pairs]
    verdict = overall(plans, results)
    mine = {plan.check: [v for name, v in pairs if name == plan.check] for plan in plans}
    every_one_green = all(seen and all(v.green for v in seen) for seen in mine.values())
    assert verdict.green == every_one_green


def test_only_pass_and_warn_are_green():
    assert [v for v in Verdict if v.green] == [Verdict.PASS, Verdict.WARN]


def test_a_result_that_is_not_green_needs_no_value():
    assert Result("cpus", Tier.NODE, GPU1, Verdict.FAIL).value is None
    with pytest.raises(ValueError, match="cpus: a pass needs"):
        Result("cpus", Tier.NODE, GPU1, Verdict.PASS, value=Metric("x", 1))


def test_of_results_that_weigh_the_same_the_first_is_kept():
    first = result("cpus", Verdict.FAIL)
    assert settle([planned("cpus")], [first, replace(first, message="later")]) == [first]


@pytest.mark.parametrize(
    ("gpus", "real", "hardware"),
    [
        (Gpus("h100_sxm", 8), True, "h100_sxm"),
        (Gpus("h100_sxm", 1), True, "h100_sxm"),
        (Gpus("h100_sxm", 0), False, "cpu"),
        (Gpus("virtual", 2), False, "virtual"),
        (Gpus("none", 0), False, "cpu"),
    ],
)
def test_which_gpus_are_real(gpus, real, hardware):
    assert gpus.real is real
    assert Node("n", 2, 2000, gpus, "ethernet").hardware == hardware


def job_on(*gpus, ranks_per_node=2):
    nodes = tuple(Node(f"n{i}", 2, 2000, node_gpus, "ethernet") for i, node_gpus in enumerate(gpus))
    subject = Subject("all", tuple(node.name for node in nodes))
    return Job(
        name="ddp",
        payload="ddp",
        tier=Tier.CLUSTER,
        subject=subject,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        backend="nccl",
        partition="gpu",
        config={},
        queue_limit_s=120,
        run_limit_s=1800,
        checks=("ddp",),
    )


def test_what_a_job_asks_for():
    job = job_on(Gpus("h100_sxm", 4), Gpus("h100_sxm", 4), Gpus("h100_sxm", 4))
    assert job.hosts == ("n0", "n1", "n2")
    assert (job.ranks, job.gres) == (6, "gpu:h100_sxm:4")
    # 12 GPUs for half an hour, and for the minute that a step may take to start
    hours = 0.5 + GRANT_LIMIT_S / 3600
    assert job.gpu_hours == pytest.approx(12 * hours)
    assert job_on(Gpus("virtual", 4), Gpus("h100_sxm", 4)).gpu_hours == pytest.approx(4 * hours)
    assert job_on(Gpus("h100_sxm", 4), Gpus("h100_sxm", 2)).gres == "gpu:h100_sxm:4"


def test_a_reply_of_which_nothing_is_known_claims_nothing():
    reply = Reply("ddp", Outcome.LOST)
    assert not reply.busy
    assert not reply.truncated
    assert (reply.exit_code, reply.job_id, reply.starts, reply.seconds) == (None, None, (), None)


def test_what_a_run_cost():
    def ran(job, started, ended, submitted=10**9):
        reply = Reply("x", Outcome.EXITED, submitted_ns=submitted)
        return JobReport(job, replace(reply, started_ns=started, ended_ns=ended))

    job = job_on(Gpus("h100_sxm", 4), Gpus("virtual", 4))
    jobs = (ran(job, 4 * 10**9, 3604 * 10**9), ran(job, None, 7), ran(job, 7, None))
    report = RunReport(
        run_id="x",
        suite="quick",
        cluster="c",
        via="v",
        slurm="",
        started="",
        seconds=1,
        verdict=Verdict.PASS,
        results=(),
        nodes=(),
        jobs=(*jobs, JobReport(job, None)),
        checks={},
    )
    assert report.gpu_hours == 4
    assert [ran(job, 1, ended, submitted).reply.seconds for submitted, ended in (
        (10**9, 4 * 10**9), (None, 4), (4, None))] == [3, None, None]  # fmt: skip
    for verdict, code in EXIT_CODES.items():
        assert replace(report, verdict=verdict).exit_code == code


def test_text_is_cut_where_it_is_too_long():
    assert printable("a\tb\x1b[31m\n c") == "a b [31m c"
    assert printable("abcde", 5) == "abcde"
    assert printable("abcdef", 5) == "abcd…"


@pytest.mark.parametrize(
    ("code", "word"),
    [(134, "aborted"), (137, "killed"), (139, "segmentation"), (143, "by srun after another")],
)
def test_what_a_signal_means_is_said(code, word):
    assert word in exit_status(code)
    assert exit_status(code).startswith(f"exit status {code} (")


# --- nodes -----------------------------------------------------------------------------------

SUITE = suites.load("quick").checks
NODES = tuple(
    Node(name, 2, 2000, Gpus("virtual", 2), "ethernet") for name in ("gpu1", "gpu2", "gpu3")
)
NAMES = tuple(node.name for node in NODES)
ALL = Subject("virtual", NAMES)


def judged(**verdicts):
    """Every check of the suite on three nodes, all of them green but those given."""
    results = []
    for name in SUITE:
        if CHECKS[name].info.tier is Tier.NODE:
            results += [result(name, Verdict.PASS, Subject.node(node)) for node in NAMES]
        else:
            results.append(result(name, Verdict.PASS, ALL, Tier.CLUSTER))
    return [replace(r, verdict=verdicts.get(r.check, r.verdict)) for r in results]


def failure(name, subject, blamed=None, verdict=Verdict.FAIL):
    tier = Tier.NODE if len(subject.nodes) == 1 else Tier.CLUSTER
    return Result(name, tier, subject, verdict, "because", blamed=blamed)


def standings(results, suite=SUITE):
    return {item.node.name: item.standing for item in node_reports(NODES, {}, results, suite)}


def everywhere(standing):
    return dict.fromkeys(NAMES, standing)


def test_a_node_passes_when_every_check_of_the_suite_was_judged_green():
    assert standings(judged()) == everywhere(Standing.PASSING)
    assert standings(judged(clock=Verdict.WARN, ddp=Verdict.SKIP)) == everywhere(Standing.PASSING)


@pytest.mark.parametrize("missing", SUITE)
def test_a_node_for_which_a_check_of_the_suite_was_not_judged_is_unproven(missing):
    results = [r for r in judged() if r.check != missing]
    assert standings(results) == everywhere(Standing.UNPROVEN)
    report = node_reports(NODES, {}, results, SUITE)[0]
    assert (report.passing, report.reason) == (False, f"not judged: {missing}")


def test_a_node_without_any_judgement_is_unproven():
    for results in ([], [result("cpus", Verdict.SKIP)]):
        report = node_reports(NODES, {}, results, SUITE)[0]
        assert (report.standing, report.reason) == (Standing.UNPROVEN, "nothing was judged")
        assert report.verdict is Verdict.INCONCLUSIVE


def test_only_the_node_with_a_failure_of_its_own_is_failing():
    results = [*judged(), failure("gpus", Subject.node("gpu2"))]
    assert standings(results) == {**everywhere(Standing.PASSING), "gpu2": Standing.FAILING}
    report = node_reports(NODES, {}, results, SUITE)[1]
    assert [own.check for own in report.own_failures] == ["gpus"]
    assert report.reason == "gpus: because"


def test_of_nodes_that_failed_together_none_is_failing():
    results = [*judged(), failure("ddp", ALL)]
    assert standings(results) == everywhere(Standing.SUSPECT)
    report = node_reports(NODES, {}, results, SUITE)[0]
    assert (report.own_failures, report.reason) == ((), "ddp: because")


def test_where_the_node_at_fault_is_known_the_others_are_only_unproven():
    results = [*judged(), failure("ddp", ALL, blamed=("gpu2",))]
    assert standings(results) == {**everywhere(Standing.UNPROVEN), "gpu2": Standing.FAILING}


def test_a_failure_of_a_nodes_own_outweighs_a_suspicion():
    results = [*judged(), failure("ddp", ALL), failure("cpus", Subject.node("gpu3"))]
    assert standings(results) == {**everywhere(Standing.SUSPECT), "gpu3": Standing.FAILING}


@pytest.mark.parametrize("subject", [Subject.node("gpu1"), ALL])
def test_what_is_no_nodes_fault_accuses_none(subject):
    by_node = standings([*judged(), failure("munge", subject, blamed=())])
    assert Standing.FAILING not in by_node.values()
    assert Standing.SUSPECT not in by_node.values()
    assert by_node["gpu1"] is Standing.UNPROVEN


@pytest.mark.parametrize("subject", [Subject.node("gpu1"), ALL])
def test_what_is_inconclusive_accuses_none_and_proves_none(subject):
    results = [*judged(), failure("all_reduce", subject, verdict=Verdict.INCONCLUSIVE)]
    report = node_reports(NODES, {}, results, SUITE)[0]
    assert (report.standing, report.reason) == (Standing.UNPROVEN, "all_reduce: because")


def test_slurms_word_for_a_node_is_kept():
    reports = node_reports(NODES, {"gpu1": "idle"}, judged(), SUITE)
    assert [report.state for report in reports] == ["idle", "unknown", "unknown"]


def test_a_check_that_this_run_cannot_prove_is_inconclusive_and_nobodys_fault():
    plan = PlannedCheck("ddp", Tier.CLUSTER, ALL, unproven="one node was asked for")
    (only,) = settle([plan], [])
    assert (only.verdict, only.message) == (Verdict.INCONCLUSIVE, "one node was asked for")
    assert only.blamed == ()
    assert overall([plan], []) is Verdict.INCONCLUSIVE
    # A result that came all the same counts, and so does a skip that nobody declared.
    assert overall([plan], [failure("ddp", ALL)]) is Verdict.FAIL
    (bounded,) = settle([plan], [result("ddp", Verdict.PASS, ALL, Tier.CLUSTER)])
    assert (bounded.verdict, bounded.message) == (only.verdict, only.message)
    assert overall([plan], [failure("ddp", ALL, verdict=Verdict.SKIP)]) is Verdict.FAIL


@given(st.text())
def test_printable_is_one_harmless_line(text):
    line = printable(text, 40)
    assert len(line) <= 40
    assert line.isprintable()
