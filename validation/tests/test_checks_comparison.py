"""Checks that compare nodes: who differs is named where that can be known, and nobody else."""

import random
import statistics
from dataclasses import replace

import pytest

from cluster.majority import most
from validation import thresholds
from validation.checks import alike, document, same_hcas, same_product, stragglers
from validation.checks.comparison import ComparedNode
from validation.model import Outcome, Reply, Subject, Verdict
from validation.tests import standin, standin_compute, standin_health, standin_host
from validation.tests.conftest import make_plan
from validation.tests.judging import assert_told, changed, put

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE
CHECKS = {module.NAME: module for module in (alike, same_product, stragglers)}
RULES = thresholds.load("h100_sxm")


def node(check, host="gpu1", count=2, model="h100_sxm"):
    """A node's job, and what a healthy one measures."""
    if check == "alike":
        job = standin_health.job_for(count, model)
        measured = standin_health.measured(count)
    else:
        job = standin_compute.job(model, count=count, dtypes=["bf16", "fp8"])
        measured = standin_compute.document(job)["measured"]
    named = replace(job.nodes[0], name=host)
    return replace(job, nodes=(named,), subject=Subject.node(host), name=f"job-{host}"), measured


def member(job, readings):
    """Without `readings` it is a node that got no job."""
    if readings is None:
        return ComparedNode(job, None, RULES)
    text = standin.line(standin.of_node(job.payload, job.hosts[0], readings, job.config))
    return ComparedNode(job, Reply(job.name, Outcome.EXITED, 0, "17", text), RULES)


def compared(check, nodes, *changes, count=2, silent=()):
    """So many nodes, gpu1 and so on; changes are (node's number, path, value)."""
    asked_of = []
    for number in range(1, nodes + 1):
        job, measured = node(check, f"gpu{number}", count)
        own = [(path, value) for of, path, value in changes if of == number]
        asked_of.append(member(job, None if number in silent else changed(measured, *own)))
    results = CHECKS[check].compare(asked_of)
    for result in results:
        assert result.check == check
        assert_told(result)
    return {result.subject.name: result for result in results}


def verdicts(results):
    return {name: result.verdict for name, result in results.items()}


def all_but(**others):
    """Four nodes pass, but for these."""
    return {f"gpu{number}": PASS for number in range(1, 5)} | others


def vbios(index, value="96.00.99.00.01"):
    return ("gpus", index, "values", "vbios"), value


UNEQUAL = [{"hash": digit * 16} for digit in "1112"]


def product(index, digit="1", dtype=0):
    return ("gpus", index, "gemm", dtype, "products"), [{"hash": digit * 16}] * 4


def speed(index, tflops):
    row = standin_compute.gemm("bf16", dict(standin_compute.job(count=2).config), tflops)
    return ("gpus", index, "gemm", 0), row


# --- all of them -----------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS)
def test_a_node_that_got_no_job_has_no_result_and_the_others_have(check):
    results = compared(check, 5, silent=(2,))
    assert verdicts(results) == dict.fromkeys(("gpu1", "gpu3", "gpu4", "gpu5"), PASS)


@pytest.mark.parametrize("check", CHECKS)
def test_one_node_that_answers_of_several_cannot_be_compared_and_says_so(check):
    results = compared(check, 3, silent=(2, 3))
    assert verdicts(results) == {"gpu1": UNKNOWN}
    assert results["gpu1"].message.endswith("; nothing is known of gpu[2-3]")
    assert results["gpu1"].value is not None  # so the node goes on


@pytest.mark.parametrize("check", CHECKS)
def test_nodes_of_another_kind_are_not_compared(check):
    """As many nodes of each, and each kind differs from the other."""
    path, value = {"alike": vbios(0), "same_product": product(0), "stragglers": speed(0, 200.0)}[
        check
    ]
    nodes = []
    for model, host in [("h100_sxm", "a"), ("h200_sxm", "b")]:
        for number in (1, 2, 3):
            job, measured = node(check, f"{host}{number}", 2, model)
            if model == "h200_sxm":
                for index in (0, 1):
                    put(measured, (*path[:1], index, *path[2:]), value)
            nodes.append(member(job, measured))
    assert {result.verdict for result in CHECKS[check].compare(nodes)} == {PASS}


@pytest.mark.parametrize("check", CHECKS)
def test_the_cost_grows_with_the_nodes_and_not_with_their_square(check, monkeypatch):
    """Every answer is read once."""
    calls = []

    def read(job, reply):
        calls.append(job.name)
        return document.read(job, reply)

    monkeypatch.setattr("validation.checks.comparison.read", read)
    compared(check, 12)
    assert len(calls) == 12


@pytest.mark.parametrize(
    ("values", "value"),
    [("aaab", "a"), ("aab", None), ("aaabbb", None), ("aaabbc", None), ("aaaabbb", "a")],
)
def test_what_most_have(values, value):
    assert most(list(values)) == value


# --- alike -----------------------------------------------------------------------------------

GSP = ("gpus", 0, "values", "gsp_firmware")


def test_a_board_with_another_vbios_is_named():
    results = compared("alike", 4, (3, *vbios(1)))
    assert verdicts(results) == all_but(gpu3=FAIL)
    assert results["gpu3"].message == (
        "GPU 1: VBIOS 96.00.99.00.01, 7 of 8 GPUs have 96.00.74.00.01"
    )
    assert results["gpu3"].blamed is None
    assert results["gpu3"].value.value == 1


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("nvml", "driver"), "570.1", "driver 570.1, 3 of 4 nodes have 580.82.07"),
        (("nvml", "cuda"), 12080, "CUDA of the driver 12.8, 3 of 4 nodes have 13.0"),
        (("software", "torch"), "2.8.0", "torch 2.8.0, 3 of 4 nodes have 2.9.0+cu130"),
        (("software", "kernel"), "6.1.0", "kernel 6.1.0, 3 of 4 nodes have 6.8.0-71-generic"),
        (GSP, "570.1", "GPU 0: GSP firmware 570.1, 7 of 8 GPUs have 580.82.07"),
    ],
)
def test_whatever_differs_is_told(path, value, message):
    results = compared("alike", 4, (2, path, value))
    assert results["gpu2"].message == message
    assert verdicts(results) == all_but(gpu2=FAIL)


@pytest.mark.parametrize("nodes", [2, 4])
def test_without_a_majority_all_are_told_and_nobody_is_accused(nodes):
    changes = [(number, ("nvml", "driver"), "570.1") for number in range(nodes // 2 + 1, nodes + 1)]
    results = compared("alike", nodes, *changes)
    assert set(verdicts(results).values()) == {FAIL}
    for result in results.values():
        assert result.message.startswith("driver differs, and which is right is not known: 580")
        assert result.blamed == ()
        assert result.value is not None


def test_gpus_of_one_node_are_one_opinion():
    """Of two nodes, one has lost a GPU: that does not put the other in the right."""
    changes = [(2, *vbios(index)) for index in range(4)]
    lost = (2, ("gpus", 3, "error"), "GPU is lost")
    results = compared("alike", 2, *changes, lost, count=4)
    assert set(verdicts(results).values()) == {FAIL}
    assert {result.blamed for result in results.values()} == {()}


def test_one_node_alone_compares_its_own_gpus():
    assert verdicts(compared("alike", 1, count=4)) == {"gpu1": PASS}
    results = compared("alike", 1, (1, *vbios(3)), count=4)
    assert results["gpu1"].verdict is FAIL
    assert results["gpu1"].message.startswith("GPU 3: VBIOS 96.00.99.00.01, 3 of 4 GPUs have")
    results = compared("alike", 1, (1, *vbios(1)))
    assert results["gpu1"].message == (
        "VBIOS differs, and which is right is not known: 96.00.74.00.01 on gpu1 GPU 0; "
        "96.00.99.00.01 on gpu1 GPU 1"
    )
    assert results["gpu1"].blamed is None  # whichever it is, it is in this node


def test_boards_of_two_names_may_have_two_versions():
    changes = [(n, ("gpus", 1, "values", "name"), "NVIDIA H100 NVL") for n in (1, 2)]
    results = compared("alike", 2, *changes, (1, *vbios(1)), (2, *vbios(1)))
    assert set(verdicts(results).values()) == {PASS}


def test_what_a_board_does_not_know_is_not_compared():
    unknown = [standin_health.unsupported("gsp_firmware"), standin_health.unsupported("x")]
    results = compared("alike", 3, (1, GSP, None), (1, ("gpus", 0, "unknown"), unknown))
    assert set(verdicts(results).values()) == {PASS}
    error = [standin_health.error("gsp_firmware")]
    results = compared("alike", 3, (1, GSP, None), (1, ("gpus", 0, "unknown"), error))
    assert results["gpu1"].verdict is FAIL
    assert results["gpu1"].message.startswith("GPU 0 does not tell its gsp_firmware")


def test_a_node_without_torch_is_the_matter_of_another_check():
    assert compared("alike", 4, (1, ("software", "torch"), None))["gpu1"].verdict is PASS


def test_a_driver_that_cannot_be_asked_is_the_matter_of_another_check():
    result = compared("alike", 4, (1, ("nvml", "error"), "no driver"))["gpu1"]
    assert (result.verdict, result.message) == (
        UNKNOWN,
        "NVML could not be asked, see driver: no driver",
    )


def test_many_values_are_one_line():
    changes = [(n, ("nvml", "driver"), f"5{n}0.1") for n in range(1, 13)]
    result = compared("alike", 12, *changes)["gpu1"]
    assert result.message == (
        "driver differs, and which is right is not known: 510.1 on gpu1; 520.1 on gpu2; "
        "530.1 on gpu3; 540.1 on gpu4; 8 other values"
    )


# --- same_product ----------------------------------------------------------------------------


def test_a_gpu_that_computes_something_else_than_all_others_is_named():
    results = compared("same_product", 4, (3, *product(1)))
    assert verdicts(results) == all_but(gpu3=FAIL)
    assert results["gpu3"].message == (
        "GPU 1: bf16 product 1111111111111111, 7 of 8 GPUs have 00d1ce5eed00d1ce"
    )


def test_two_nodes_of_one_gpu_that_disagree_accuse_nobody():
    results = compared("same_product", 2, (2, *product(0)), count=1)
    assert set(verdicts(results).values()) == {FAIL}
    assert {result.blamed for result in results.values()} == {()}
    assert results["gpu1"].message == (
        "bf16 product differs, and which is right is not known: 00d1ce5eed00d1ce on gpu1 GPU 0; "
        "1111111111111111 on gpu2 GPU 0"
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("start", "torch"), "2.8.0"),
        (("start", "cuda"), "12.8"),
        (("start", "name"), "NVIDIA H100 NVL"),
        (("start", "multiprocessors"), 114),
        (("gemm", 0, "data"), "x"),
        (("links", "nvml", "driver"), "570.1"),
    ],
)
def test_gpus_of_other_software_are_not_compared(path, value):
    own = path[0] == "links"  # the driver's version, which the node tells
    changes = [(1, path if own else ("gpus", index, *path), value) for index in (0, 1)]
    changes += [(1, *product(index)) for index in (0, 1)]
    assert verdicts(compared("same_product", 4, *changes)) == all_but()


def test_a_gpu_without_an_equal_is_inconclusive():
    results = compared("same_product", 4, (1, ("gpus", 0, "start", "torch"), "2.8.0"))
    assert results["gpu1"].verdict is UNKNOWN
    assert results["gpu1"].message == (
        "there is nothing to compare with: GPU 0 bf16 product, GPU 0 fp8 product"
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("gpus", 1, "start"), {"error": "lost"}, "GPU 1 has no product, see cuda"),
        (("gpus", 1, "gemm", 0, "error"), "lost", "GPU 1, bf16: no product, see gemm"),
        (("gpus", 1, "gemm", 0, "products"), UNEQUAL, "GPU 1, bf16: no product of its own, see re"),
        (("links", "nvml", "driver"), None, "the version of the driver is not known, see links"),
    ],
)
def test_a_gpu_without_a_product_is_inconclusive(path, value, message):
    results = compared("same_product", 4, (1, path, value))
    assert verdicts(results) == all_but(gpu1=UNKNOWN)
    assert results["gpu1"].message.startswith(message)


# --- stragglers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "warn", "fail"),
    [
        ([100.0] * 2, None, None),
        ([100.0] * 3, 95.0, 75.0),
        ([100.0, 100.0, 70.0], 95.0, 75.0),  # one of three is named
        ([98.0, 100.0, 102.0], 88.0, 75.0),  # six MADs of 2
        ([98.0, 100.0, 100.0, 102.0], 94.0, 75.0),  # and of 1
        ([100.0] * 5, 95.0, 75.0),
        ([92.0, 96.0, 100.0, 104.0, 106.0], 84.0, 75.0),  # four MADs of 4
        ([100.0, 100.0, 100.0, 100.0, 10.0], 95.0, 75.0),  # the slow one does not move it
        ([50.0, 50.0, 100.0, 120.0, 120.0], 90.0, 75.0),  # however far they scatter
        ([100.0] * 2 + [70.0] * 2, 75.0, 63.75),  # one of two nodes, as a whole
    ],
)
def test_the_limit_of_equals(values, warn, fail):
    limit = stragglers.limit(values, "TFLOPS")
    assert (limit and limit.warn, limit and limit.value) == (warn, fail)


@pytest.mark.parametrize(
    ("tflops", "verdict"), [(694.0, PASS), (690.0, WARN), (548.0, WARN), (547.0, FAIL)]
)
def test_a_gpu_that_lags_behind_those_of_other_nodes_is_named(tflops, verdict):
    results = compared("stragglers", 4, (3, *speed(1, tflops)))
    assert verdicts(results) == all_but(gpu3=verdict)
    assert results["gpu3"].value.name == "GPU 1, bf16"
    assert results["gpu3"].blamed is None
    if verdict is not PASS:
        message = f"GPU 1, bf16 is {tflops} TFLOPS; the median of 8 GPUs is 730"
        assert results["gpu3"].message == message


CONFIG = dict(standin_compute.job(count=2).config)


@pytest.mark.parametrize(
    ("path", "row", "message", "median"),
    [
        (("memory", 1), standin_compute.memory("triad", CONFIG, 1e3), "triad is 1000.0", 2970),
        (("copies", 1), standin_compute.copy("d2h", CONFIG, 12.0), "to the host is 12.0", 52),
    ],
)
def test_memory_and_copies_are_compared_too(path, row, message, median):
    result = compared("stragglers", 4, (2, ("gpus", 0, *path), row))["gpu2"]
    assert result.verdict is FAIL
    assert result.message == f"GPU 0, {message} GB/s; the median of 8 GPUs is {median}"


def test_a_node_that_is_slow_as_a_whole_is_told_by_its_gpus():
    results = compared("stragglers", 4, (4, *speed(0, 300.0)), (4, *speed(1, 310.0)))
    assert results["gpu4"].message == (
        "GPU 0, bf16 is 300.0 TFLOPS; the median of 8 GPUs is 730; "
        "GPU 1, bf16 is 310.0 TFLOPS; the median of 8 GPUs is 730"
    )
    assert results["gpu4"].value.name == "GPU 0, bf16"  # the node's slowest


def test_fewer_than_three_tell_nothing():
    results = compared("stragglers", 1, (1, *speed(0, 100.0)))
    assert set(verdicts(results).values()) == {UNKNOWN}
    assert (
        results["gpu1"].message == "figures of 2 GPUs are too few to find a slow one, 3 are needed"
    )


def test_a_slow_gpu_of_two_nodes_is_named():
    results = compared("stragglers", 2, (2, *speed(0, 500.0)))
    assert verdicts(results) == {"gpu1": PASS, "gpu2": FAIL}
    assert results["gpu2"].message == "GPU 0, bf16 is 500.0 TFLOPS; the median of 4 GPUs is 730"


def test_of_two_nodes_the_one_that_is_slow_as_a_whole_is_told():
    results = compared("stragglers", 2, *((2, *speed(gpu, 510.0)) for gpu in (0, 1)))
    assert verdicts(results) == {"gpu1": PASS, "gpu2": WARN}


def test_a_spread_of_few_values_is_taken_for_more():
    """The factor by which the MAD of so few normal values is too small on average."""
    drawn = random.Random(1)
    for count, factor in ((3, 1.495), (4, 1.363)):
        spreads = []
        for _ in range(20_000):
            values = [drawn.gauss(0, 1) for _ in range(count)]
            middle = statistics.median(values)
            spreads.append(statistics.median(abs(value - middle) for value in values))
        assert 1 / (1.4826 * statistics.mean(spreads)) == pytest.approx(factor, rel=0.03)


def test_boards_of_another_name_are_no_measure():
    other = (1, ("gpus", 0, "start", "name"), "NVIDIA H100 NVL")
    results = compared("stragglers", 4, other, (1, *speed(0, 100.0)))
    assert verdicts(results) == all_but(gpu1=UNKNOWN)


def test_a_figure_that_is_missing_is_inconclusive_and_one_that_lags_fails_still():
    missing = (1, ("gpus", 0, "memory", 0, "error"), "out of memory")
    results = compared("stragglers", 4, missing)
    assert results["gpu1"].verdict is UNKNOWN
    assert results["gpu1"].message == "not measured: GPU 0, copy"
    results = compared("stragglers", 4, missing, (1, *speed(1, 100.0)))
    assert results["gpu1"].verdict is FAIL
    gone = (1, ("gpus", 0, "start"), {"error": "lost"})
    assert compared("stragglers", 4, gone)["gpu1"].message == "not measured: GPU 0"


def test_a_cpu_is_never_judged_for_speed():
    job = standin_compute.job("virtual", count=5)
    measured = standin_compute.document(job)["measured"]
    for check in ("stragglers", "same_product"):
        (result,) = CHECKS[check].compare([member(job, measured)])
        assert result.verdict is FAIL  # it is never planned: see plan.skips
        assert "prove nothing about a GPU" in result.message


# --- adapters of the fabric ------------------------------------------------------------------


def adapters(*changes, nodes=4, count=2):
    """What same_hcas says of nodes; changes are (node's number, port, key, value)."""
    names = [(f"gpu{number}", "h100_sxm", 8, "ib_ndr400") for number in range(1, nodes + 1)]
    jobs = [job for job in make_plan(*names, suite="gpu").jobs if job.payload == "host"]
    members = []
    for number, job in enumerate(jobs, start=1):
        measured = standin_host.host(job.config)
        measured["infiniband"]["ports"] = [standin_host.port(port) for port in range(count)]
        for of, port, key, value in changes:
            if of == number:
                measured["infiniband"]["ports"][port][key] = value
        members.append(member(job, measured))
    return {result.subject.name: result for result in same_hcas.compare(members)}


def test_an_adapter_with_other_firmware_is_named():
    results = adapters((3, 1, "firmware", "28.35.1012"))
    assert verdicts(results) == all_but(gpu3=FAIL)
    assert results["gpu3"].message == ("mlx5_1: firmware 28.35.1012, 7 of 8 parts have 28.39.2048")


def test_adapters_of_another_board_may_have_another_firmware():
    other = ("firmware", "26.1"), ("board", "MT_0000000223")
    changes = [(number, 1, *change) for number in range(1, 5) for change in other]
    assert verdicts(adapters(*changes)) == all_but()


def test_a_node_with_fewer_adapters_is_named():
    results = adapters((2, 1, "link_layer", "Ethernet"))
    assert verdicts(results) == all_but(gpu2=FAIL)
    assert results["gpu2"].message == "HCAs 1, 3 of 4 nodes have 2"


def test_of_two_nodes_that_differ_nobody_knows_which_is_wrong():
    results = adapters(*((1, port, "firmware", "28.35.1012") for port in (0, 1)), nodes=2)
    assert verdicts(results) == {"gpu1": FAIL, "gpu2": FAIL}
    assert {result.blamed for result in results.values()} == {()}
    assert "28.35.1012 on gpu1 mlx5_0, gpu1 mlx5_1" in results["gpu1"].message
