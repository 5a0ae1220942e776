"""Curves, calls and ranks held against each other; what the check makes of every collective."""

import dataclasses
import math
import random

import pytest

from validation import thresholds
from validation.checks.collectives import Wrong, at_fault
from validation.checks.curve import Model, Times, fit, outliers, slow_ranks
from validation.model import Outcome, Rank, Reply, Verdict
from validation.payloads.collectives import OPERATIONS
from validation.tests import standin
from validation.tests.conftest import make_plan
from validation.tests.healthy_answers import healthy, result
from validation.tests.judging import changed, judged

LIMITS = thresholds.load("virtual").common.outliers
GLOO, NCCL = LIMITS["gloo"], LIMITS["nccl"]
SIZES = [8 * 4**power for power in range(16)]  # 8 bytes to 8 GiB


def times(seconds, sizes=SIZES):
    """Of a size each; a number stands for ten equal calls."""
    calls = [item if isinstance(item, list) else [item] * 10 for item in seconds]
    return [
        Times(f"{size} bytes", size, tuple(item)) for size, item in zip(sizes, calls, strict=True)
    ]


def protocols(latencies_us=(15, 30, 100), gbs=(60, 200, 300), sizes=SIZES):
    """The fastest of three protocols at each size, as NCCL chooses: LL, LL128 and Simple."""
    return [
        min(
            latency * 1e-6 + size / speed / 1e9
            for latency, speed in zip(latencies_us, gbs, strict=True)
        )
        for size in sizes
    ]


# --- the model -------------------------------------------------------------------------------


def test_latency_and_bandwidth_are_found_again():
    model = fit(times([2e-5 + size / 3e11 for size in SIZES]))
    assert model.latency_s == pytest.approx(2e-5)
    assert model.s_per_byte == pytest.approx(1 / 3e11)
    assert model.seconds(1 << 30) == pytest.approx(2e-5 + (1 << 30) / 3e11)


@pytest.mark.parametrize("slow", range(16))
def test_one_slow_size_does_not_bend_the_model(slow):
    seconds = [2e-5 + size / 3e11 for size in SIZES]
    seconds[slow] *= 1000
    model = fit(times(seconds))
    assert model.latency_s == pytest.approx(2e-5, rel=0.1)
    assert model.s_per_byte == pytest.approx(1 / 3e11, rel=0.1)


def test_a_single_size_is_its_own_model():
    assert fit(times([0.1], [8])) == Model(0.1, 0.0)


def test_equal_sizes_are_no_two_points():
    """With many ranks the smallest sizes are all one element of each."""
    model = fit(times([1e-4, 3e-4, 1e-4, 2e-4], [64, 64, 64, 1024]))
    assert 1e-4 <= model.seconds(64) <= 3e-4


# --- what is slow ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "seconds", "sizes"),
    [
        (NCCL, protocols(), SIZES),
        # LL's latency against Simple's, at the extremes of NCCL's own table.
        (NCCL, protocols((0.6, 1.9, 4), (30, 100, 300)), SIZES),
        (NCCL, protocols((270, 400, 1400), (10, 20, 45)), SIZES),
        # Of the four sizes of `quick`.
        (NCCL, protocols(sizes=[1 << 20, 1 << 26, 1 << 30, 1 << 33]), None),
        # What five ranks on two busy cores measured, in the order of the suite's sizes.
        (GLOO, [0.0026, 0.0075, 0.0227, 0.0128, 0.021, 0.171], SIZES[::2][:6]),
        (GLOO, [0.0171, 0.008, 0.0064, 0.0023, 0.006, 0.0414], SIZES[::2][:6]),
    ],
)
def test_no_size_of_a_healthy_curve_is_slow(limits, seconds, sizes):
    sizes = sizes or [1 << 20, 1 << 26, 1 << 30, 1 << 33]
    assert outliers(times(seconds, sizes), limits) == []


def test_no_noise_of_healthy_curves_is_an_outlier():
    """Times that vary by a factor of two, and calls by tens of milliseconds now and then."""
    draw = random.Random(7)
    for _ in range(200):
        curve_s = [seconds * draw.uniform(1, 2) for seconds in protocols()]
        calls = [
            [
                seconds * draw.uniform(1, 1.5) + (draw.random() < 0.02) * draw.uniform(0, 0.1)
                for _ in range(10)
            ]
            for seconds in curve_s
        ]
        assert outliers(times(calls), NCCL) == []


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("suite", ["quick", "network"])
def test_one_size_a_thousand_times_slower_is_named(backend, suite):
    """At the sizes of the suites, with the thresholds that ship."""
    payload = "all_reduce" if suite == "quick" else "collectives"
    sizes = list(config_of(suite, payload, backend)["sizes_bytes"])
    latency, speed = (2e-4, 5e8) if backend == "gloo" else (2e-5, 3e11)
    for slow in range(len(sizes)):
        seconds = [latency + size / speed for size in sizes]
        seconds[slow] *= 1000
        found = outliers(times(seconds, sizes), LIMITS[backend])
        assert [finding.value.name for finding in found] == [
            f"{sizes[slow]} bytes against its model"
        ]
        assert "at most 10 times expected" in found[0].sentence


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("suite", ["quick", "network"])
def test_every_size_but_the_largest_a_thousand_times_slower_is_seen(backend, suite):
    payload = "all_reduce" if suite == "quick" else "collectives"
    sizes = list(config_of(suite, payload, backend)["sizes_bytes"])
    latency, speed = (2e-4, 5e8) if backend == "gloo" else (2e-5, 3e11)
    seconds = [(latency + size / speed) * (1000 if size != sizes[-1] else 1) for size in sizes]
    found = outliers(times(seconds, sizes), LIMITS[backend])
    assert found
    assert str(sizes[-1]) not in found[0].value.name


@pytest.mark.parametrize(("limits", "median_s"), [(GLOO, 0.03), (NCCL, 0.03), (NCCL, 3e-4)])
def test_one_call_a_thousand_times_slower_is_seen(limits, median_s):
    calls = [median_s] * 9 + [median_s * 1000]
    (found,) = outliers([Times("all_gather 1 GiB", 1 << 30, tuple(calls))], limits)
    assert "1 of 10 calls of all_gather 1 GiB took" in found.sentence
    assert "1e+03 times the median" in found.sentence


@pytest.mark.parametrize(
    ("limits", "median_s", "slowest_s"),
    [(GLOO, 0.001, 1.9), (GLOO, 1.0, 9.0), (NCCL, 2e-5, 0.19), (NCCL, 0.1, 0.9)],
)
def test_a_call_that_is_slow_by_chance_is_none(limits, median_s, slowest_s):
    assert outliers([Times("x", 8, (*[median_s] * 9, slowest_s))], limits) == []


# --- ranks -----------------------------------------------------------------------------------


def ranks(count, each=1):
    return [
        Rank(rank, rank % each, f"gpu{rank // each + 1}", "cpu", torch="2.6.0")
        for rank in range(count)
    ]


@pytest.mark.parametrize("count", [2, 3, 5, 8, 1024])
def test_a_rank_whose_own_work_is_slow_is_named(count):
    work = [[0.02] * count for _ in range(8)]
    for measured in work:
        measured[-1] = 0.6
    slow = slow_ranks(work, ranks(count), GLOO.rank)
    assert slow is not None
    assert slow.host == f"gpu{count}"
    assert f"rank {count - 1} on gpu{count} needs 30 times as long" in slow.finding.sentence


@pytest.mark.parametrize(
    "work",
    [
        [[0.038, 0.024, 0.098, 0.108, 0.034]],  # as five ranks on two busy cores measured
        [[0.015, 0.022, 0.007, 0.027, 0.015], [0.046, 0.063, 0.04, 0.016, 0.015]],
        [[0.01] * 4 + [0.4], [0.01] * 5, [0.01] * 5],  # once, and not in most measurements
        [[0.001] * 4 + [0.09]],  # below the floor
        [[0.02, 0.03, 0.2, 0.4, 0.5, 0.6]],  # the others differ as much
        [[3.0]],
        [],
    ],
)
def test_what_busy_nodes_do_makes_no_rank_slow(work):
    count = len(work[0]) if work else 3
    assert slow_ranks(work, ranks(count), GLOO.rank) is None


def test_ranks_of_several_nodes_name_none():
    work = [[0.02] * 8 + [0.6, 0.6]]
    slow = slow_ranks(work, ranks(10), GLOO.rank)
    assert slow is not None
    assert slow.host is None
    slow = slow_ranks(work, ranks(10, 2), GLOO.rank)
    assert slow is not None
    assert slow.host == "gpu5"


# --- whose fault wrong elements are ------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "cells", "blamed"),
    [
        # From several nodes straight to one; from one straight to several.
        ("all_to_all", [(1, 0), (1, 2)], ("gpu2",)),
        ("all_to_all", [(0, 1), (2, 1)], ("gpu2",)),
        # From one to one: either, or the link.
        ("all_to_all", [(1, 0)], None),
        ("sendrecv", [(1, 0)], None),
        # Its own block came to it over no link.
        ("all_gather", [(1, 1)], ("gpu2",)),
        ("all_gather", [(1, 1), (1, 0)], ("gpu2",)),
        # Others pass it on.
        ("all_gather", [(1, 0), (1, 2)], None),
        ("all_gather", [(0, 1), (2, 1)], None),
        ("broadcast", [(1, 0), (2, 0)], None),
        ("broadcast", [(0, 0), (1, 0)], None),
        # Everything everywhere.
        ("all_to_all", [(a, b) for a in range(3) for b in range(3)], None),
        ("all_reduce", [(1, None)], ("gpu2",)),
        ("all_reduce", [(1, None), (2, None)], None),
        ("reduce_scatter", [(1, None)], None),
    ],
)
def test_a_node_is_blamed_only_for_what_no_other_can_have_done(operation, cells, blamed):
    known = ranks(3)
    wrong = [
        Wrong(known[receiver], None if sender is None else known[sender], 1)
        for receiver, sender in cells
    ]
    assert at_fault(operation, wrong) == blamed


# --- the check -------------------------------------------------------------------------------


def config_of(suite, payload, backend):
    nodes = [("gpu1", "virtual" if backend == "gloo" else "h100_sxm", 8, "ib_ndr400")]
    nodes.append(("gpu2", *nodes[0][1:]))
    jobs = make_plan(*nodes, suite=suite).jobs
    return next(job for job in jobs if job.payload == payload).config


def said(document, job=None):
    answer = healthy("collectives")
    return result("collectives", job or answer.job, standin.line(document))


WAY = ["measured", "ways"]
LARGEST = [*WAY, 1, "sizes", 5]  # of all_gather


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ([*WAY], [], "0 ways of operations were measured, not those asked for"),
        ([*WAY, 7], ..., "7 ways of operations were measured"),
        ([*WAY, 2, "in_place"], False, "8 ways of operations were measured, not those asked for"),
        ([*LARGEST], ..., "all_gather: 5 sizes were measured, 6 asked for"),
        ([*LARGEST, "bytes"], 8388604, "all_gather 8 MiB: 8388604 bytes were moved, 8388608 asked"),
        ([*LARGEST, "calls_checked"], 5, "all_gather 8 MiB: 5 of 6 calls were checked"),
        ([*LARGEST, "calls_s"], [0.01] * 4, "4 calls were timed, 5 asked for"),
        ([*LARGEST, "calls_s", 2], 0, "impossible times of calls: 0 to "),
        ([*LARGEST, "calls_s", 2], 1e6, "impossible times of calls"),
        ([*LARGEST, "wrong"], {}, "wrong is no list"),
        ([*LARGEST, "wrong"], [[0, None, 1]], "all_gather: [0, None, 1] says of no ranks"),
        ([*LARGEST, "wrong"], [[0, 9, 1]], "says of no ranks what is wrong"),
        ([*LARGEST, "wrong"], [[0, 1, 0]], "says of no ranks what is wrong"),
        ([*LARGEST, "wrong"], [[True, 1, 1]], "says of no ranks what is wrong"),
        ([*WAY, 0, "sizes", 0, "wrong"], [[0, 1, 1]], "all_reduce: [0, 1, 1] says of no ranks"),
        ([*WAY, 0, "work_s_by_rank"], [0.1], "work_s_by_rank is of 1 ranks, 2 were asked for"),
        (["measured", "memory_bytes"], 10**11, "memory_bytes is 100000000000, with gloo"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_fails(path, value, words):
    outcome = said(changed(healthy("collectives").document, (path, value)))
    assert outcome.verdict is Verdict.FAIL
    assert words in outcome.message


def test_wrong_elements_are_told_with_who_sent_them():
    document = changed(healthy("collectives").document, ([*LARGEST, "wrong"], [[1, 0, 7]]))
    outcome = said(document)
    assert outcome.verdict is Verdict.FAIL
    assert outcome.message == (
        "7 elements of all_gather 8 MiB are wrong, on rank 1 on gpu2, sent by rank 0 on gpu1"
    )
    assert (outcome.value.value, outcome.blamed) == (7, None)


@pytest.mark.parametrize("way", range(8))
def test_each_way_is_judged_by_its_own_threshold(way):
    answer = healthy("collectives")
    document = changed(answer.document)
    row = document["measured"]["ways"][way]
    row["sizes"][-1]["calls_s"] = [30.0] * 5
    outcome = said(document)
    assert outcome.verdict is Verdict.FAIL
    assert outcome.message.startswith(f"busbw {row['operation']}")
    assert "8 MiB is 0.000" in outcome.message
    assert "times what the other sizes let expect" in outcome.message  # the curve tells it too
    assert outcome.blamed is None


def test_a_slow_node_is_named_beside_what_is_slow():
    document = changed(healthy("collectives").document)
    for way in document["measured"]["ways"]:
        way["work_s_by_rank"] = [0.02, 0.9]
    document["measured"]["ways"][3]["sizes"][-1]["calls_s"] = [30.0] * 5
    outcome = said(document)
    assert "busbw reduce_scatter 8 MiB is" in outcome.message
    assert "rank 1 on gpu2 needs 45 times as long as the other ranks" in outcome.message
    assert outcome.blamed == ("gpu2",)


H100 = (("gpu1", "h100_sxm", 8, "ib_ndr400"), ("gpu2", "h100_sxm", 8, "ib_ndr400"))


def on_gpus(*nodes, **changes):
    """The job on GPUs, and its answer."""
    job = next(job for job in make_plan(*nodes, suite="network").jobs if job.name == "collectives")
    settings = {"busbw_gbs": 370.0, "fabric": nodes[0][3]} | changes
    return job, standin.collectives(job.hosts, job.config, 8, **settings)


def test_on_gpus_without_a_threshold_it_is_inconclusive_and_all_can_be_recorded():
    job, document = on_gpus(*H100)
    outcome = said(document, job)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "no threshold recorded for all_reduce, all_gather, reduce_scatter" in outcome.message
    assert [dict(sample.keys)["operation"] for sample in outcome.unjudged] == list(OPERATIONS)
    assert {dict(sample.keys)["min_bytes"] for sample in outcome.unjudged} == {8 << 30}
    assert {sample.repetitions for sample in outcome.unjudged} == {10}
    assert all(math.isclose(sample.value, 370, rel_tol=0.01) for sample in outcome.unjudged)


def test_what_has_a_threshold_is_judged_also_where_others_have_none():
    """Of one H200 node broadcast and sendrecv are not known."""
    nodes = (("gpu1", "h200_sxm", 8, "ib_ndr400"),)
    job, document = on_gpus(*nodes, busbw_gbs=440.0)
    for rank in document["proof"]["ranks"]:
        rank["gpu"] = "NVIDIA H200"
    outcome = said(document, job)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "no threshold recorded for broadcast, sendrecv on h200_sxm" in outcome.message
    job, document = on_gpus(*nodes, busbw_gbs=300.0)
    for rank in document["proof"]["ranks"]:
        rank["gpu"] = "NVIDIA H200"
    outcome = said(document, job)
    assert outcome.verdict is Verdict.FAIL
    assert "busbw all_gather 8 GiB is" in outcome.message


def test_a_small_gpu_measures_the_sizes_that_fit():
    job, document = on_gpus(*H100)
    for way in document["measured"]["ways"]:
        way["sizes"] = way["sizes"][:-1]
    assert "15 sizes were measured, 16 asked for" in said(document, job).message
    document["measured"]["memory_bytes"] = 16 << 30
    outcome = said(document, job)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "busbw all_reduce 2 GiB" in [metric.name for metric in outcome.metrics]
    document["measured"]["memory_bytes"] = 8
    assert "too few for any size" in said(document, job).message


def test_nccls_choices_and_carriers_stand_beside_the_numbers():
    job, document = on_gpus(*H100)
    choice = {"function": "AllGather", "algorithm": "RING", "protocol": "LL", "channels": 2}
    larger = {**choice, "protocol": "SIMPLE", "least_bytes": 1 << 20, "most_bytes": 8 << 30}
    document["measured"]["transport"][0]["choices"] = [
        {**choice, "least_bytes": 8, "most_bytes": 1 << 19},
        larger,
        {**larger, "function": "AllReduce", "algorithm": "NVLS"},
    ]
    shown = {metric.name: metric.value for metric in said(document, job).metrics}
    assert shown["algorithm all_gather 512 KiB"] == "RING LL"
    assert shown["algorithm all_gather in place 8 GiB"] == "RING SIMPLE"
    assert shown["algorithm all_reduce 8 GiB"] == "NVLS SIMPLE"
    assert "algorithm all_to_all 8 GiB" not in shown
    assert shown["transport"] == "NET/IB mlx5_0:1, P2P/CUMEM"


FIGURES = {"operation": "all_gather", "busbw_gbs": 361.0, "in_place_busbw_gbs": 360.0}
SECOND = {"host": "gpu2", "bytes": 8 << 30, "figures": [{**FIGURES, "wrong": 0, "error": None}]}


def test_the_figures_of_nccl_tests_stand_beside_our_own():
    job, document = on_gpus(*H100)
    slower = changed(SECOND, (["host"], "gpu1"), (["figures", 0, "busbw_gbs"], 300.0))
    document["measured"]["nccl_tests"] = [SECOND, slower]
    outcome = said(document, job)
    shown = {metric.name: metric.value for metric in outcome.metrics}
    assert shown["nccl-tests all_gather 8 GiB on gpu1 alone"] == 300.0
    assert shown["busbw all_gather 8 GiB"] == pytest.approx(370, rel=0.01)
    assert outcome.verdict is Verdict.INCONCLUSIVE  # ours is what is judged


def test_nccl_tests_without_figures_says_why_and_wrong_elements_are_the_nodes_own():
    job, document = on_gpus(*H100)
    none = {"busbw_gbs": 0, "in_place_busbw_gbs": 0, "wrong": 0, "error": "it ended"}
    failed = {**SECOND, "host": "gpu1", "figures": [{**FIGURES, **none}]}
    document["measured"]["nccl_tests"] = [failed, changed(SECOND, (["figures", 0, "wrong"], 3))]
    outcome = said(document, job)
    shown = {metric.name: metric.value for metric in outcome.metrics}
    assert shown["nccl-tests all_gather 8 GiB on gpu1"] == "no figures: it ended"
    assert outcome.verdict is Verdict.FAIL
    assert "3 elements of nccl-tests all_gather 8 GiB are wrong, on gpu2 alone" in outcome.message
    assert outcome.blamed == ("gpu2",)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["host"], "gpu9", "nccl-tests ran with 8589934592 bytes on gpu9"),
        (["bytes"], 7, "nccl-tests ran with 7 bytes on gpu2"),
        (["figures", 0, "operation"], "gather", "nccl-tests gather 8 GiB on gpu2 has no figures"),
        (["figures", 0, "busbw_gbs"], 0, "has no figures"),
        (["figures", 0, "error"], "x", "has no figures"),
        (["figures", 0, "wrong"], -1, "wrong is no whole number"),
    ],
)
def test_figures_of_nccl_tests_that_make_no_sense_are_unusable(path, value, words):
    job, document = on_gpus(*H100)
    document["measured"]["nccl_tests"] = [changed(SECOND, (path, value))]
    outcome = said(document, job)
    assert outcome.verdict is Verdict.FAIL
    assert words in outcome.message
    document["measured"]["nccl_tests"] = None
    assert "whether nccl-tests is installed" in said(document, job).message


def test_one_rank_alone_is_judged_by_its_elements_only():
    nodes = (("gpu1", "virtual", 1),)
    job = next(job for job in make_plan(*nodes, suite="network").jobs if job.name == "collectives")
    document = standin.collectives(job.hosts, job.config, 1, busbw_gbs=1e6)
    reply = Reply(job.name, Outcome.EXITED, 0, "17", standin.line(document))
    outcome = judged("collectives", job, reply)
    assert outcome.verdict is Verdict.PASS
    assert outcome.value.name == "wrong elements"
    document["measured"]["ways"][0]["sizes"][0]["wrong"] = [[0, None, 1]]
    reply = dataclasses.replace(reply, stdout=standin.line(document))
    assert judged("collectives", job, reply).verdict is Verdict.FAIL


@pytest.mark.parametrize("check", ["collectives", "all_reduce"])
def test_a_rank_alone_may_have_nothing_to_do_and_others_may_not(check):
    """Two GPU events around a call that NCCL does not launch can be 0 ms apart."""
    suite = {"collectives": "network", "all_reduce": "quick"}[check]
    for ranks, verdict in ((1, Verdict.PASS), (2, Verdict.FAIL)):
        nodes = tuple((f"gpu{number}", "virtual", 1) for number in range(1, ranks + 1))
        job = next(job for job in make_plan(*nodes, suite=suite).jobs if job.name == check)
        document = getattr(standin, check)(job.hosts, job.config, 1)
        measured = document["measured"]
        rows = measured["sizes"] if check == "all_reduce" else measured["ways"][0]["sizes"]
        row = rows[0]
        row["calls_s"] = [0.0] * len(row["calls_s"])
        for name in ("time_s_median", "time_s_min", "time_s_max"):
            if name in row:
                row[name] = 0.0
        reply = Reply(job.name, Outcome.EXITED, 0, "17", standin.line(document))
        assert judged(check, job, reply).verdict is verdict


# --- all_reduce is held against the same -------------------------------------------------------


def summed(change):
    answer = healthy("all_reduce")
    document = changed(answer.document)
    change(document["measured"]["sizes"])
    return result("all_reduce", answer.job, standin.line(document))


def scale(row, factor):
    row["calls_s"] = [seconds * factor for seconds in row["calls_s"]]
    for name in ("time_s_median", "time_s_min", "time_s_max"):
        row[name] *= factor
    row["busbw_gbs"] /= factor


def test_all_reduce_sees_sizes_and_calls_that_are_slow():
    def all_but_the_largest(sizes):
        for row in sizes[:-1]:
            scale(row, 1000)

    slow = summed(all_but_the_largest)
    assert slow.verdict is Verdict.FAIL
    assert "times what the other sizes let expect" in slow.message
    assert slow.value.unit == "×"

    def one_call(sizes):
        sizes[-1]["calls_s"][-1] = sizes[-1]["time_s_max"] = 7.0

    slow = summed(one_call)
    assert slow.verdict is Verdict.FAIL
    assert "1 of 5 calls of 4 MiB took 7 s, 2e+03 times the median" in slow.message
    assert slow.blamed is None


def test_all_reduce_names_the_node_whose_own_work_is_slow():
    def stalled(sizes):
        scale(sizes[-1], 100)
        sizes[-1]["work_s_by_rank"] = [0.01, 0.4]

    slow = summed(stalled)
    assert "at least 0.05 expected; rank 1 on gpu2 needs 40 times as long" in slow.message
    assert slow.blamed == ("gpu2",)
