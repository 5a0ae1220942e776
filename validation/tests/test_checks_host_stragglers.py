"""Hosts are compared where enough of them are alike, and only what is alike of them."""

import copy
import random

import pytest

from validation import thresholds
from validation.checks import host_stragglers
from validation.checks.comparison import ComparedNode
from validation.model import Outcome, Reply, Verdict
from validation.plan import Selection
from validation.tests import standin, standin_host
from validation.tests.conftest import declare, make_plan, plan_of
from validation.tests.judging import assert_told, put

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE
RULES = thresholds.load("h100_sxm")
DISK, MEMORY, CORES = (("disk", "found"), ("memory", "found"), ("cores", "found"))


def compared(count, *changes, silent=(), every=lambda number, measured: None):
    """So many nodes, gpu1 and so on; changes are (node's number, path, value)."""
    nodes = [(f"gpu{number}", "h100_sxm", 8) for number in range(1, count + 1)]
    jobs = [job for job in make_plan(*nodes, suite="gpu").jobs if job.payload == "host_speed"]
    members = []
    for number, job in enumerate(jobs, start=1):
        measured = copy.deepcopy(standin_host.host_speed(job.config))
        every(number, measured)
        for of, path, value in changes:
            if of == number:
                put(measured, path, value)
        text = standin.line(standin.of_node("host_speed", job.hosts[0], measured, job.config))
        reply = Reply(job.name, Outcome.EXITED, 0, "17", text)
        members.append(ComparedNode(job, None if number in silent else reply, RULES))
    results = host_stragglers.compare(members)
    for result in results:
        assert_told(result)
    return {result.subject.name: result for result in results}


def all_but(count, **others):
    return {f"gpu{number}": PASS for number in range(1, count + 1)} | others


def verdicts(results):
    return {name: result.verdict for name, result in results.items()}


@pytest.mark.parametrize(
    ("path", "value", "verdict", "words"),
    [
        (
            (*DISK, "write_s"),
            12.8,
            FAIL,
            "disk write 0.02097 GB/s, the median of alike nodes is 2.1",
        ),
        ((*DISK, "read_s"), 6.4, FAIL, "disk read 0.04194 GB/s, the median of alike nodes is 4.19"),
        ((*DISK, "write_s"), 0.64, WARN, "disk write 0.4194 GB/s, the median of alike nodes is 2"),
        ((*DISK, "write_s"), 0.3, PASS, ""),
        ((*MEMORY, "array_bytes"), 2**30, PASS, ""),  # faster is nobody's fault
    ],
)
def test_a_slow_host_is_named_and_no_other(path, value, verdict, words):
    results = compared(6, (3, path, value))
    assert verdicts(results) == all_but(6, gpu3=verdict)
    assert results["gpu3"].message.startswith(words)


def test_a_node_whose_cores_are_all_slow_is_named():
    tried = {"tries": 9, "best_s": 0.02, "wrong": 0}
    slow = [{"cpu": cpu, "alone": tried, "together": tried} for cpu in range(4)]
    results = compared(5, (5, (*CORES, "cores"), slow))
    assert verdicts(results) == all_but(5, gpu5=FAIL)
    assert results["gpu5"].message.startswith("hashing of a core 0.01311 GB/s, the median")
    assert results["gpu5"].value.value == 0.01


def test_disks_of_another_kind_are_not_compared():
    results = compared(
        6,
        (6, (*DISK, "source"), "/dev/sda1"),
        (6, (*DISK, "write_s"), 2.5),
        (6, (*DISK, "read_s"), 2.5),
    )
    assert verdicts(results) == all_but(6)
    message = "too few alike nodes have the same to compare: disk write, sd, disk read, sd"
    assert results["gpu6"].message == message


def test_disks_that_have_no_speed_are_left_out():
    results = compared(5, *((number, (*DISK, "cache"), "in memory") for number in range(1, 6)))
    assert verdicts(results) == all_but(5)
    assert [metric.name for metric in results["gpu1"].metrics] == [
        "memory copy",
        "hashing of a core",
    ]


def test_of_fewer_than_three_that_answer_nothing_is_known():
    results = compared(3, (2, (*DISK, "write_s"), 100.0), silent=(1,))
    assert verdicts(results) == dict.fromkeys(("gpu2", "gpu3"), UNKNOWN)
    assert results["gpu2"].message == (
        "figures of fewer than 3 alike nodes are too few to find a slow one; "
        "nothing is known of gpu1"
    )


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("sick", [1, 2, 3])
@pytest.mark.parametrize(("times", "verdict"), [(4, WARN), (12, FAIL), (1000, FAIL)])
def test_one_slow_node_of_three_or_four_is_named_and_no_other(count, sick, times, verdict):
    results = compared(count, (sick, (*DISK, "write_s"), 0.128 * times))
    assert verdicts(results) == all_but(count, **{f"gpu{sick}": verdict})


def test_two_slow_nodes_of_three_blame_none():
    """Their speed is the median, and a fast node is nobody's fault."""
    slow = ((number, (*DISK, "write_s"), 100.0) for number in (1, 2))
    assert verdicts(compared(3, *slow)) == all_but(3)


def test_what_could_not_be_measured_is_the_matter_of_its_own_check():
    error = "did not answer within 60 s"
    results = compared(7, (1, ("disk",), {"found": None, "error": error}))
    assert verdicts(results) == all_but(7, gpu1=UNKNOWN)
    assert results["gpu1"].message == f"not measured, see disk: {error}"


@pytest.mark.parametrize("count", [3, 4, 8])
@pytest.mark.parametrize("seed", range(20))
def test_nodes_that_scatter_are_none_of_them_slow(seed, count):
    """Disks of several ages and fill, memory that others use too: a factor of two and a half."""
    draw = random.Random(seed)

    def scatter(number, measured):
        for name in ("write_s", "read_s"):
            measured["disk"]["found"][name] *= draw.uniform(1, 2.5)
        for core in measured["memory"]["found"]["cores"]:
            core["seconds"] *= draw.uniform(1, 2.5)

    assert verdicts(compared(count, every=scatter)) == all_but(count)


@pytest.mark.parametrize(
    ("count", "skip"),
    [(2, "2 nodes of this kind, and 3 are needed to compare"), (3, None)],
)
def test_the_plan_says_why_hosts_are_not_compared(count, skip):
    nodes = [(f"c{number}", "none", 0) for number in range(1, count + 1)]
    planned = [check for check in make_plan(*nodes, suite="gpu").checks if check.check == "cores"]
    assert {check.skip for check in planned} == {None}
    planned = [
        check
        for check in make_plan(*nodes, suite="gpu").checks
        if check.check == host_stragglers.NAME
    ]
    assert {check.skip for check in planned} == {skip}


def test_a_selection_of_too_few_of_many_proves_nothing():
    document = declare(*((f"c{number}", "none", 0) for number in range(1, 8)))
    plan = plan_of(document, suite="gpu", selection=Selection(nodes="c[1-2]"))
    check = next(check for check in plan.checks if check.check == host_stragglers.NAME)
    assert check.skip is None
    assert check.unproven == "2 nodes of this kind, and 3 are needed to compare"
