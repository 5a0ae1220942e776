"""Answers of payload `compute` are judged: right ones pass, each fault fails and names its GPU."""

import copy
import functools

import pytest

from validation import thresholds
from validation.checks import copies, gemm, hbm, peers, repeatable
from validation.checks.registry import describe
from validation.model import Verdict
from validation.tests import standin_compute as standin

CHECKS = {module.NAME: module for module in (gemm, hbm, copies, peers, repeatable)}
EIGHT = standin.job()
VIRTUAL = standin.job("virtual", count=2)
rules_of = functools.cache(thresholds.load)
RULES = rules_of("h100_sxm")


def judge(check, job, document, rules=None):
    rules = rules or rules_of(job.nodes[0].hardware)
    result = CHECKS[check].evaluate(job, standin.reply(job, document), rules)
    assert result.check == check
    assert len(result.message) <= 320
    assert "\n" not in result.message
    assert not result.message.endswith(".")
    return result


def broken(job, *changes):
    """A healthy answer with values changed: (path below `measured`, value), `...` removes it."""
    document = standin.document(job)
    for path, value in changes:
        place = document["measured"]
        for key in path[:-1]:
            place = place[key]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value
    return document


def gpu(index, *path):
    return ("gpus", index, *path)


@pytest.mark.parametrize("check", CHECKS)
def test_a_healthy_node_passes(check):
    result = judge(check, EIGHT, standin.document(EIGHT))
    assert (result.verdict, result.message) == (Verdict.PASS, "")
    assert result.value is not None
    assert result.threshold is not None
    assert result.proof.job_id == "17"


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_says_what_to_do(check):
    info = describe(CHECKS[check])
    assert info.summary
    assert info.what
    assert info.why
    assert info.advice
    assert info.commands


# --- one fault at a time ---------------------------------------------------------------------


def slow(speed, **wanted):
    """A row of a GPU, with this speed and the times that belong to it."""
    config = dict(EIGHT.config)
    if "dtype" in wanted:
        return standin.gemm(wanted["dtype"], config, speed)
    if "operation" in wanted:
        return standin.memory(wanted["operation"], config, speed)
    if "direction" in wanted:
        return standin.copy(wanted["direction"], config, speed)
    return standin.pair(wanted["source"], wanted["target"], config, speed)


FAULTS = [
    # CUDA does not start
    ("gemm", (gpu(7), ...), Verdict.FAIL, "figures of 7 GPUs"),
    ("gemm", (gpu(3, "start", "uuid"), "GPU-gpu1-2"), Verdict.FAIL, "the same GPU was measured tw"),
    ("gemm", (gpu(3, "start"), {"error": "no"}), Verdict.FAIL, "GPU 3: no"),
    ("gemm", (("device",), "cpu"), Verdict.FAIL, "measured 'cpu', 'cuda' was asked for"),
    # a slow GPU
    (
        "gemm",
        (gpu(3, "gemm", 0), slow(501.2, dtype="bf16")),
        Verdict.FAIL,
        "GPU 3, bf16 is 501.2 TFLOPS, at least 620 expected",
    ),
    (
        "gemm",
        (gpu(3, "gemm", 4), slow(1090.0, dtype="fp8")),
        Verdict.FAIL,
        "GPU 3, fp8 is 1090.0 TFLOPS, at least 1096 expected",
    ),
    (
        "gemm",
        (gpu(3, "gemm", 0), slow(650.0, dtype="bf16")),
        Verdict.WARN,
        "GPU 3, bf16 is 650.0 TFLOPS, close to the threshold; healthy: ≥ 672",
    ),
    ("gemm", (gpu(3, "gemm", 0), slow(694.0, dtype="bf16")), Verdict.PASS, ""),
    (
        "hbm",
        (gpu(0, "memory", 0), slow(2464.0, operation="copy")),
        Verdict.FAIL,
        "GPU 0, copy is 2464.0 GB/s, at least 2465 expected",
    ),
    (
        "copies",
        (gpu(5, "copies", 1), slow(24.0, direction="d2h")),
        Verdict.FAIL,
        "GPU 5, to the host is 24.0 GB/s, at least 48 expected",
    ),
    (
        "peers",
        (("pairs", 9), slow(300.0, source=1, target=3)),
        Verdict.FAIL,
        "GPU 1 to 3 is 300.0 GB/s, at least 335 expected",
    ),
    # faster than the hardware
    (
        "gemm",
        (gpu(2, "gemm", 0), slow(990.0, dtype="bf16")),
        Verdict.FAIL,
        "GPU 2, bf16 is 990.0 TFLOPS, more than the hardware can (989): the measurement is wrong",
    ),
    ("gemm", (gpu(2, "gemm", 3), slow(68.0, dtype="fp32")), Verdict.FAIL, "GPU 2, fp32 is 68.0 TF"),
    (
        "hbm",
        (gpu(2, "memory", 0), slow(3351.0, operation="copy")),
        Verdict.FAIL,
        "GPU 2, copy is 3",
    ),
    (
        "copies",
        (gpu(2, "copies", 0), slow(64.0, direction="h2d")),
        Verdict.FAIL,
        "GPU 2, from the host is 64.0 GB/s, more than the hardware can (63)",
    ),
    (
        "peers",
        (("pairs", 0), slow(451.0, source=0, target=1)),
        Verdict.FAIL,
        "GPU 0 to 1 is 451.0 GB/s, more than the hardware can (450)",
    ),
    # wrong data
    (
        "gemm",
        (gpu(6, "gemm", 1, "rounding_error"), 8.1),
        Verdict.FAIL,
        "GPU 6, fp16: the product is wrong at row 17, column 4711, 8.1 times what rounding may do",
    ),
    (
        "gemm",
        (gpu(6, "gemm", 1, "rounding_error"), "nan"),
        Verdict.FAIL,
        "GPU 6, fp16: the product is wrong at row 17, column 4711, not finite times what",
    ),
    ("gemm", (gpu(6, "gemm", 1, "rounding_error"), 8.0), Verdict.PASS, ""),
    ("gemm", (gpu(6, "gemm", 1, "rounding_error"), 0.0), Verdict.PASS, ""),
    ("gemm", (gpu(6, "gemm", 1, "rounding_error"), 12.3456), Verdict.FAIL, "12.346 times what"),
    ("gemm", (gpu(6, "gemm", 1, "rounding_error"), -1.0), Verdict.FAIL, "a difference of -1"),
    ("gemm", (gpu(6, "gemm", 1, "checked"), 4095), Verdict.FAIL, "4095 of 4096 elements"),
    ("hbm", (gpu(6, "memory", 1, "wrong"), 1), Verdict.FAIL, "GPU 6, triad: 1 elements are wrong"),
    (
        "copies",
        (gpu(6, "copies", 0, "wrong"), 3),
        Verdict.FAIL,
        "GPU 6, from the host: 3 bytes are",
    ),
    ("peers", (("pairs", 8, "wrong"), 512), Verdict.FAIL, "GPU 1 to 2: 512 bytes are wrong"),
    # not the same again
    (
        "repeatable",
        (gpu(4, "gemm", 2, "products", 1, "hash"), "0" * 16),
        Verdict.FAIL,
        "GPU 4, tf32: one product came out in 2 ways in 4 repetitions",
    ),
    (
        "repeatable",
        (gpu(4, "gemm", 2, "products"), [{"hash": "00d1ce5eed00d1ce"}] * 3),
        Verdict.FAIL,
        "GPU 4, tf32: no hash of each of 4 products",
    ),
    (
        "repeatable",
        (gpu(4, "gemm", 2, "products"), [{"hash": ""}] * 4),
        Verdict.FAIL,
        "GPU 4, tf32: no hash of each of 4 products",
    ),
    (
        "repeatable",
        (gpu(4, "gemm", 2, "products", 3, "hash"), "short"),
        Verdict.FAIL,
        "GPU 4, tf32: no hash of each of 4 products",
    ),
    # not measured
    (
        "gemm",
        (gpu(1, "gemm", 0), {"dtype": "bf16", "error": "the process did not end in 60 s"}),
        Verdict.FAIL,
        "GPU 1, bf16: the process did not end in 60 s",
    ),
    (
        "repeatable",
        (gpu(1, "gemm", 0), {"dtype": "bf16", "error": "hung"}),
        Verdict.FAIL,
        "GPU 1, bf16: hung",
    ),
    ("hbm", (gpu(1, "memory", 0), {"operation": "copy", "error": ""}), Verdict.FAIL, "no reason"),
    (
        "copies",
        (gpu(1, "copies", 0), {"direction": "h2d", "error": "x"}),
        Verdict.FAIL,
        "GPU 1, fr",
    ),
    ("peers", (("pairs", 0), {"source": 0, "target": 1, "error": "x"}), Verdict.FAIL, "0 to 1: x"),
    ("gemm", (gpu(1, "gemm", 0), ...), Verdict.FAIL, "GPU 1 measured ['fp16', 'tf32', 'fp32'"),
    ("hbm", (gpu(1, "memory", 1), ...), Verdict.FAIL, "GPU 1 measured ['copy'], asked for"),
    ("copies", (gpu(1, "copies", 1), ...), Verdict.FAIL, "GPU 1 measured ['h2d'], asked for"),
    ("peers", (("pairs", 55), ...), Verdict.FAIL, "55 pairs of GPUs were measured, not each of 56"),
    (
        "peers",
        (("pairs", 0, "target"), 2),
        Verdict.FAIL,
        "56 pairs of GPUs were measured, not each",
    ),
    (
        "gemm",
        (gpu(1, "gemm", 4, "unsupported"), "torch 2.0 has no fp8"),
        Verdict.FAIL,
        "GPU 1, fp8: torch 2.0 has no fp8; the thresholds of h100_sxm ask for it",
    ),
    ("gemm", (gpu(1, "gemm", 1, "unsupported"), "no fp16"), Verdict.PASS, ""),
    # times that cannot be
    ("gemm", (gpu(1, "gemm", 0, "wall_s"), 0.1), Verdict.FAIL, "by the node's 0.1 s: one is wrong"),
    ("gemm", (gpu(1, "gemm", 0, "time_s_total"), 9.0), Verdict.FAIL, "200 repetitions of these ti"),
    ("gemm", (gpu(1, "gemm", 0, "time_s_min"), 0.0), Verdict.FAIL, "impossible times"),
    ("gemm", (gpu(1, "gemm", 0, "time_s_min"), 1.0), Verdict.FAIL, "impossible times"),
    (
        "gemm",
        (gpu(1, "gemm", 0, "iterations"), 9),
        Verdict.FAIL,
        "9 repetitions were timed, at lea",
    ),
    ("gemm", (gpu(1, "gemm", 0, "tflops"), 800.0), Verdict.FAIL, "the payload claims 800, its tim"),
    ("gemm", (gpu(1, "gemm", 0, "m"), 4096), Verdict.FAIL, "multiplied (4096, 8192, 8192), asked"),
    ("hbm", (gpu(1, "memory", 0, "gbs"), 3300.0), Verdict.FAIL, "the payload claims 3300, its tim"),
    ("hbm", (gpu(1, "memory", 0, "moved"), 1 << 30), Verdict.FAIL, "moved 1073741824 bytes with"),
    (
        "hbm",
        (gpu(1, "memory", 0, "bytes"), 1 << 29),
        Verdict.FAIL,
        "bytes with buffers of 53687091",
    ),
    ("hbm", (gpu(1, "start", "l2_bytes"), (1 << 28) + 1), Verdict.FAIL, "lie in an L2 cache of"),
    ("hbm", (gpu(1, "start", "l2_bytes"), 1 << 28), Verdict.PASS, ""),
    ("hbm", (gpu(1, "start", "l2_bytes"), None), Verdict.PASS, ""),
    ("copies", (gpu(1, "copies", 0, "bytes"), 1 << 20), Verdict.FAIL, "1048576 bytes were copied"),
    ("peers", (("pairs", 0, "bytes"), 1 << 20), Verdict.FAIL, "1048576 bytes were copied"),
    ("peers", (("pairs", 0, "way"), True), Verdict.FAIL, "is no text"),
]


@pytest.mark.parametrize(("check", "change", "verdict", "message"), FAULTS)
def test_one_fault(check, change, verdict, message):
    result = judge(check, EIGHT, broken(EIGHT, change))
    assert (result.verdict, message in result.message) == (verdict, True), result.message
    assert result.blamed is None  # the node, which is the only one


def test_the_figure_with_the_least_room_is_shown():
    row = slow(700.0, dtype="bf16")
    result = judge("gemm", EIGHT, broken(EIGHT, (gpu(5, "gemm", 0), row)))
    assert (result.verdict, result.value.name, result.value.value) == (
        Verdict.PASS,
        "GPU 5, bf16",
        700.0,
    )
    change = (gpu(1, "gemm", 1, "rounding_error"), 3.0)
    result = judge("gemm", VIRTUAL, broken(VIRTUAL, change))
    assert (result.verdict, result.value.name) == (Verdict.PASS, "GPU 1, bf16, rounding")


def failing(indices):
    """The first product of these GPUs, each with a reason of its own."""
    return [
        (gpu(index, "gemm", 0), {"dtype": "bf16", "error": f"reason {index}"}) for index in indices
    ]


def test_many_faults_are_counted():
    result = judge("gemm", EIGHT, broken(EIGHT, *failing(range(8))))
    message = "GPU 0, bf16: reason 0; GPU 1, bf16: reason 1; GPU 2, bf16: reason 2; and 5 more"
    assert result.message == message


def test_three_faults_are_told_in_full():
    result = judge("gemm", EIGHT, broken(EIGHT, *failing(range(3))))
    message = "GPU 0, bf16: reason 0; GPU 1, bf16: reason 1; GPU 2, bf16: reason 2"
    assert result.message == message


def test_repetitions_may_all_take_as_long():
    times = standin.times(0.25, 20)
    times |= {"time_s_min": 0.25, "time_s_max": 0.25}
    row = {**standin.copy("h2d", dict(EIGHT.config)), **times, "gbs": (1 << 28) / 0.25 / 1e9}
    result = judge("copies", EIGHT, broken(EIGHT, (gpu(0, "copies", 0), row)))
    assert "GPU 0, from the host is 1.07 GB/s" in result.message


def test_a_gpu_that_did_not_start_is_told_once_and_not_with_each_pair():
    changes = [(gpu(3, "start"), {"error": "lost"})]
    changes += [
        (("pairs", place), {"source": row["source"], "target": row["target"], "error": "unusable"})
        for place, row in enumerate(standin.document(EIGHT)["measured"]["pairs"])
        if 3 in (row["source"], row["target"])
    ]
    result = judge("peers", EIGHT, broken(EIGHT, *changes))
    assert (result.verdict, result.message) == (Verdict.FAIL, "GPU 3: no CUDA there, see cuda")


def test_the_way_through_the_host_is_told():
    change = (("pairs", 0), {**slow(20.0, source=0, target=1), "way": "host"})
    result = judge("peers", EIGHT, broken(EIGHT, change))
    assert "GPU 0 to 1 (through the host) is 20.0 GB/s" in result.message


def test_a_node_with_one_gpu_has_no_pairs():
    job = standin.job(count=1)
    assert judge("peers", job, standin.document(job)).verdict is Verdict.SKIP
    for check in CHECKS.keys() - {"peers"}:
        assert judge(check, job, standin.document(job)).verdict is Verdict.PASS


def test_a_gpu_with_none_of_the_types_fails():
    job = standin.job(count=1, dtypes=["fp16"])
    document = broken(job, (gpu(0, "gemm", 0, "unsupported"), "none"))
    for check in ("gemm", "repeatable"):
        result = judge(check, job, document)
        assert result.verdict is Verdict.FAIL
        assert result.message == "GPU 0: it has none of the types that were asked for"


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (8, "GPU 5, bf16: other numbers than 7 GPUs have were multiplied"),
        (2, "GPUs 0, 1 have different bf16 numbers to multiply"),
    ],
)
def test_a_host_that_draws_other_numbers_from_the_same_seed_fails(count, message):
    job = standin.job(count=count, dtypes=["bf16"])
    row = gpu(min(5, count - 1), "gemm", 0)
    changes = [((*row, "data"), "x"), ((*row, "products"), [{"hash": "1" * 16}] * 4)]
    result = judge("repeatable", job, broken(job, *changes))
    assert (result.verdict, result.message) == (Verdict.FAIL, message)


def test_a_gpu_that_does_not_repeat_itself_fails():
    products = [{"hash": digit * 16} for digit in "1234"]
    result = judge("repeatable", EIGHT, broken(EIGHT, (gpu(4, "gemm", 2, "products"), products)))
    assert result.message == "GPU 4, tf32: one product came out in 4 ways in 4 repetitions"


def test_what_repeats_is_one_product():
    result = judge("repeatable", EIGHT, standin.document(EIGHT))
    assert (result.value.value, result.threshold.value) == (1, 1)
    assert len(result.metrics) == 8 * 5


# --- without a threshold ---------------------------------------------------------------------


@pytest.mark.parametrize("check", ["gemm", "hbm", "copies", "peers"])
def test_an_unknown_model_is_inconclusive(check):
    job = standin.job("tpu_v9")
    result = judge(check, job, standin.document(job))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.message.startswith("no thresholds file for the model tpu_v9: GPU 0")
    assert result.message.endswith("record a baseline")
    assert result.value is not None


def test_what_needs_no_threshold_of_the_model_passes():
    job = standin.job("tpu_v9")
    assert judge("repeatable", job, standin.document(job)).verdict is Verdict.PASS


def test_a_fault_counts_without_a_threshold_too():
    job = standin.job("tpu_v9")
    result = judge("gemm", job, broken(job, (gpu(0, "gemm", 0, "rounding_error"), 99.0)))
    assert result.verdict is Verdict.FAIL
    fast = standin.gemm("bf16", dict(job.config), 2501.0)
    result = judge("gemm", job, broken(job, (gpu(0, "gemm", 0), fast)))
    assert result.verdict is Verdict.FAIL
    assert "more than the hardware can (2500)" in result.message


def test_another_shape_than_that_of_the_threshold_is_not_judged_by_it():
    job = standin.job(gemm_size=4096)
    result = judge("gemm", job, standin.document(job))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "no threshold recorded for h100_sxm" in result.message


def test_another_number_of_gpus_than_that_of_the_threshold_is_not_judged_by_it():
    job = standin.job(count=4)
    assert judge("peers", job, standin.document(job)).verdict is Verdict.INCONCLUSIVE


def test_each_gpu_needs_a_threshold():
    """Boards of one model can differ: what holds for one says nothing of the other."""
    job = standin.job("a100_sxm", count=2, dtypes=["bf16"])
    both = [(gpu(index, "start", "name"), "NVIDIA A100-SXM4-80GB") for index in range(2)]
    rows = [
        (gpu(index, "memory", place), standin.memory(operation, dict(job.config), gbs))
        for index in range(2)
        for place, (operation, gbs) in enumerate({"copy": 1400.0, "triad": 1700.0}.items())
    ]
    assert judge("hbm", job, broken(job, *both, *rows)).verdict is Verdict.PASS
    other = (gpu(1, "start", "name"), "NVIDIA A100-SXM4-96GB")
    result = judge("hbm", job, broken(job, *both, *rows, other))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "GPU 1" in result.message


# --- on a CPU --------------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("hardware", ["virtual", "h100_sxm"])
def test_a_cpu_is_judged_for_what_is_right_and_never_by_the_speed_of_a_gpu(check, hardware):
    result = judge(check, VIRTUAL, standin.document(VIRTUAL), rules_of(hardware))
    assert (result.verdict, result.message) == (Verdict.PASS, "")
    assert result.threshold.unit in ("", "GPUs")
    assert all("CPU" in metric.name for metric in result.metrics if metric.unit)
    speeds = {"gemm": 4, "hbm": 4, "copies": 4, "peers": 2}
    assert sum(bool(metric.unit) for metric in result.metrics) == speeds.get(check, 0)


@pytest.mark.parametrize(
    ("check", "path", "value"),
    [
        ("gemm", gpu(1, "start"), {"error": "torch is missing"}),
        ("gemm", gpu(1, "gemm", 0, "rounding_error"), 9.0),
        ("hbm", gpu(1, "memory", 0, "wrong"), 1),
        ("copies", gpu(1, "copies", 0, "wrong"), 1),
        ("peers", ("pairs", 1, "wrong"), 1),
        ("repeatable", gpu(1, "gemm", 0, "products", 1, "hash"), "0" * 16),
    ],
)
def test_what_is_wrong_on_a_cpu_fails(check, path, value):
    result = judge(check, VIRTUAL, broken(VIRTUAL, (path, value)))
    assert result.verdict is Verdict.FAIL


@pytest.mark.parametrize("check", CHECKS)
def test_figures_of_a_cpu_say_nothing_of_declared_gpus(check):
    job = standin.job(count=2, **{**standin.CPU, "gpus": 2})
    result = judge(check, job, standin.document(job))
    assert result.verdict is Verdict.FAIL
    assert result.message.startswith("computed on a CPU")


def test_the_stand_in_is_not_changed_by_a_check():
    document = standin.document(EIGHT)
    before = copy.deepcopy(document)
    for check in CHECKS:
        judge(check, EIGHT, document)
    assert document == before
