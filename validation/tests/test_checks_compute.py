"""Answers of payload `compute` are judged: right ones pass, each fault fails and names its GPU."""

import pytest

from validation.checks import copies, gemm, hbm, peers, repeatable
from validation.model import Verdict
from validation.tests import standin_compute as standin
from validation.tests.judging import judged, put, rules_of

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE
CHECKS = tuple(module.NAME for module in (gemm, hbm, copies, peers, repeatable))
EIGHT = standin.job()
VIRTUAL = standin.job("virtual", count=2)
CONFIG = dict(EIGHT.config)


def judge(check, job, document, rules=None):
    return judged(check, job, standin.reply(job, document), rules)


def broken(job, *changes):
    """A healthy answer with values changed: (path below `measured`, value), `...` removes it."""
    document = standin.document(job)
    for path, value in changes:
        put(document["measured"], path, value)
    return document


def gpu(index, *path):
    return ("gpus", index, *path)


# --- one fault at a time ---------------------------------------------------------------------


def product(tflops, dtype="bf16"):
    """A row of a GPU, with this speed and the times that belong to it."""
    first = standin.WARM * tflops if dtype == "bf16" else None
    return standin.gemm(dtype, CONFIG, tflops, first)


def memory(gbs):
    return standin.memory("copy", CONFIG, gbs)


def fill(**changes):
    return standin.fill({"device": "cuda"}, **changes)


def copied(direction, gbs):
    return standin.copy(direction, CONFIG, gbs)


def pair(source, target, gbs):
    return standin.pair(source, target, CONFIG, gbs)


BF16, FP16 = ("gemm", 0), ("gemm", 1)
TF32_HASHES = gpu(4, "gemm", 2, "products")
FAULTS = [
    # CUDA does not start
    ("gemm", gpu(7), ..., "figures of 7 GPUs"),
    ("gemm", gpu(3, "start", "uuid"), "GPU-gpu1-2", "the same GPU was measured tw"),
    ("gemm", gpu(3, "start"), {"error": "no"}, "GPU 3: no"),
    ("gemm", ("device",), "cpu", "measured 'cpu', 'cuda' was asked for"),
    # a slow GPU
    ("gemm", gpu(3, *BF16), product(501.2), "GPU 3, bf16 is 501.2 TFLOPS, at least 620 expected"),
    ("gemm", gpu(3, "gemm", 4), product(1090.0, "fp8"), "fp8 is 1090.0 TFLOPS, at least 1096"),
    ("hbm", gpu(0, "memory", 0), memory(2186.0), "GPU 0, copy is 2186.0 GB/s, at least 2187"),
    ("copies", gpu(5, "copies", 1), copied("d2h", 24.0), "GPU 5, to the host is 24.0 GB/s, at"),
    ("peers", ("pairs", 9), pair(1, 3, 300.0), "GPU 1 to 3 is 300.0 GB/s, at least 335 expected"),
    # faster than the hardware
    ("gemm", gpu(2, *BF16), product(990.0), "the hardware can (989): the measurement is wrong"),
    ("gemm", gpu(2, "gemm", 3), product(68.0, "fp32"), "GPU 2, fp32 is 68.0 TFLOPS, more than"),
    ("hbm", gpu(2, "memory", 0), memory(3351.0), "GPU 2, copy is 3351.0 GB/s, more than"),
    ("copies", gpu(2, "copies", 0), copied("h2d", 64.0), "more than the hardware can (63)"),
    ("peers", ("pairs", 0), pair(0, 1, 451.0), "is 451.0 GB/s, more than the hardware can (450)"),
    # wrong data
    (
        "gemm",
        gpu(6, *FP16, "rounding_error"),
        8.1,
        "GPU 6, fp16: the product is wrong at row 17, column 4711, 8.1 times what rounding may do",
    ),
    ("gemm", gpu(6, *FP16, "rounding_error"), "nan", "column 4711, not finite times what"),
    ("gemm", gpu(6, *FP16, "rounding_error"), 12.3456, "12.346 times what"),
    ("gemm", gpu(6, *FP16, "rounding_error"), -1.0, "a difference of -1"),
    ("gemm", gpu(6, *FP16, "checked"), 4095, "4095 of 4096 elements"),
    ("hbm", gpu(6, "memory", 1, "wrong"), 1, "GPU 6, triad: 1 elements are wrong"),
    ("hbm", gpu(6, "fill"), fill(wrong=1, first=[290, 17]), "GPU 6, all of its memory: 1 words"),
    ("hbm", gpu(1, "fill"), fill(filled=40 << 30), "40960 MiB of 80462 were looked at in time"),
    ("hbm", gpu(1, "fill"), fill(filled=0), "0 bytes of 84370854400 that are free"),
    ("hbm", gpu(1, "fill"), fill(passes=1), "bytes of 84370854400 that are free"),
    ("hbm", gpu(1, "fill"), fill(wrong=2), "2 words are wrong of"),
    ("hbm", gpu(1, "fill"), {"error": "CUDA error: unspecified"}, "memory: CUDA error: unspec"),
    ("copies", gpu(6, "copies", 0, "wrong"), 3, "GPU 6, from the host: 3 bytes are"),
    ("peers", ("pairs", 8, "wrong"), 512, "GPU 1 to 2: 512 bytes are wrong"),
    # not the same again
    (
        "repeatable",
        (*TF32_HASHES, 1, "hash"),
        "0" * 16,
        "tf32: one product came out in 2 ways in 4",
    ),
    ("repeatable", TF32_HASHES, [{"hash": "00d1ce5eed00d1ce"}] * 3, "no hash of each of 4"),
    ("repeatable", TF32_HASHES, [{"hash": ""}] * 4, "GPU 4, tf32: no hash of each of 4 products"),
    ("repeatable", (*TF32_HASHES, 3, "hash"), "short", "tf32: no hash of each of 4 products"),
    # not measured
    ("gemm", gpu(1, *BF16), {"dtype": "bf16", "error": "it hung"}, "GPU 1, bf16: it hung"),
    ("repeatable", gpu(1, *BF16), {"dtype": "bf16", "error": "it hung"}, "GPU 1, bf16: it hung"),
    ("hbm", gpu(1, "memory", 0), {"operation": "copy", "error": ""}, "no reason"),
    ("copies", gpu(1, "copies", 0), {"direction": "h2d", "error": "x"}, "GPU 1, from the host: x"),
    ("peers", ("pairs", 0), {"source": 0, "target": 1, "error": "x"}, "0 to 1: x"),
    ("gemm", gpu(1, *BF16), ..., "GPU 1 measured ['fp16', 'tf32', 'fp32'"),
    ("hbm", gpu(1, "memory", 1), ..., "GPU 1 measured ['copy'], asked for"),
    ("copies", gpu(1, "copies", 1), ..., "GPU 1 measured ['h2d'], asked for"),
    ("peers", ("pairs", 55), ..., "55 pairs of GPUs were measured, not each of 56"),
    ("peers", ("pairs", 0, "target"), 2, "56 pairs of GPUs were measured, not each"),
    (
        "gemm",
        gpu(1, "gemm", 4),
        {**product(1.0, "fp8"), "unsupported": "8.0 has no fp8", "in_hardware": False},
        "GPU 1, fp8: 8.0 has no fp8; the thresholds of h100_sxm ask for it",
    ),
    # times that cannot be
    ("gemm", gpu(1, *BF16, "wall_s"), 0.1, "by the node's 0.1 s: one is wrong"),
    ("gemm", gpu(1, *BF16, "time_s_total"), 9.0, "200 repetitions of these ti"),
    ("gemm", gpu(1, *BF16, "time_s_min"), 0.0, "impossible times"),
    ("gemm", gpu(1, *BF16, "time_s_min"), 1.0, "impossible times"),
    ("gemm", gpu(1, *BF16, "iterations"), 9, "9 repetitions were timed, at lea"),
    ("gemm", gpu(1, *BF16, "tflops"), 800.0, "the payload claims 800, its tim"),
    ("gemm", gpu(1, *BF16, "m"), 4096, "multiplied (4096, 8192, 8192), asked"),
    ("hbm", gpu(1, "memory", 0, "gbs"), 3300.0, "the payload claims 3300, its tim"),
    ("hbm", gpu(1, "memory", 0, "moved"), 1 << 30, "moved 1073741824 bytes with"),
    ("hbm", gpu(1, "memory", 0, "bytes"), 1 << 29, "bytes with buffers of 53687091"),
    ("hbm", gpu(1, "start", "l2_bytes"), (1 << 28) + 1, "lie in an L2 cache of"),
    ("copies", gpu(1, "copies", 0, "bytes"), 1 << 20, "1048576 bytes were copied"),
    ("peers", ("pairs", 0, "bytes"), 1 << 20, "1048576 bytes were copied"),
    ("peers", ("pairs", 0, "way"), True, "is no text"),
]


@pytest.mark.parametrize(("check", "path", "value", "words"), FAULTS)
def test_one_fault(check, path, value, words):
    result = judge(check, EIGHT, broken(EIGHT, (path, value)))
    assert (result.verdict, words in result.message) == (FAIL, True), result.message
    assert result.blamed is None  # the node, which is the only one


@pytest.mark.parametrize(
    ("check", "path", "value"),
    [
        ("gemm", gpu(3, *BF16), product(694.0)),
        ("gemm", gpu(6, *FP16, "rounding_error"), 8.0),
        ("gemm", gpu(6, *FP16, "rounding_error"), 0.0),
        ("gemm", gpu(1, *FP16, "unsupported"), "no fp16"),
        ("hbm", gpu(1, "start", "l2_bytes"), 1 << 28),
        ("hbm", gpu(1, "start", "l2_bytes"), None),
    ],
)
def test_what_is_just_right_passes(check, path, value):
    result = judge(check, EIGHT, broken(EIGHT, (path, value)))
    assert result.verdict is PASS, result.message


def test_a_speed_that_is_close_to_the_threshold_is_a_warning():
    result = judge("gemm", EIGHT, broken(EIGHT, (gpu(3, *BF16), product(650.0))))
    assert (result.verdict, result.message) == (
        WARN,
        "GPU 3, bf16 is 650.0 TFLOPS, close to the threshold; healthy: ≥ 672; "
        "not judged: fp16, fp32",
    )


@pytest.mark.parametrize(
    ("first", "later", "verdict"),
    [(760.0, 730.0, PASS), (830.0, 700.0, WARN), (960.0, 700.0, FAIL), (700.0, 730.0, PASS)],
)
def test_a_gpu_that_is_fast_only_when_cold_is_not_green(first, later, verdict):
    row = standin.gemm("bf16", CONFIG, later, first)
    result = judge("gemm", EIGHT, broken(EIGHT, (gpu(3, *BF16), row)))
    assert result.verdict is verdict
    told = f"GPU 3, bf16 is {later} TFLOPS after 8 s of load, {first} in its first second"
    assert (told in result.message) is (verdict is not PASS)
    figures = {metric.name: metric.value for metric in result.metrics}
    assert (figures["GPU 3, bf16"], figures["GPU 3, first second"]) == (later, first)


def test_the_later_figure_is_the_one_that_is_judged():
    row = standin.gemm("bf16", CONFIG, 600.0, 700.0)
    result = judge("gemm", EIGHT, broken(EIGHT, (gpu(3, *BF16), row)))
    assert (result.verdict, result.message) == (
        FAIL,
        "GPU 3, bf16 is 600.0 TFLOPS, at least 620 expected",
    )


def test_the_first_second_is_that_of_the_first_type_that_a_gpu_has():
    job = standin.job("t4", count=1, dtypes=["bf16", "fp16"])
    none = {"dtype": "bf16", "error": None, "unsupported": "7.5 has no bf16", "in_hardware": False}
    row = standin.gemm("fp16", dict(job.config), 42.0)
    document = broken(job, (gpu(0, "gemm", 0), none), (gpu(0, "gemm", 1), row))
    assert judge("gemm", job, document).message == "GPU 0, fp16: its first second was not measured"
    row = standin.gemm("fp16", dict(job.config), 42.0, 43.0)
    document = broken(job, (gpu(0, "gemm", 0), none), (gpu(0, "gemm", 1), row))
    assert judge("gemm", job, document).verdict is PASS


def test_a_process_on_cpus_that_may_be_far_from_its_gpu_is_told():
    far = (gpu(3, "start", "numa_cpus"), 0)
    result = judge("copies", EIGHT, broken(EIGHT, far))
    told = "copied from CPUs that may be far away: GPU 3"
    assert (result.verdict, result.message) == (PASS, told)
    result = judge("copies", EIGHT, broken(EIGHT, far, (gpu(3, "copies", 0), copied("h2d", 40.0))))
    assert result.verdict is FAIL
    assert result.message.endswith(f"at least 48 expected; {told}")


def test_a_torch_without_a_type_says_nothing_of_a_gpu_that_has_it():
    change = (gpu(1, "gemm", 4, "unsupported"), "torch 2.4.1 has no fp8")
    result = judge("gemm", EIGHT, broken(EIGHT, change))
    assert (result.verdict, result.message) == (
        UNKNOWN,
        "GPU 1, fp8: torch 2.4.1 has no fp8; the thresholds of h100_sxm ask for it",
    )
    slow = (gpu(3, *BF16), product(501.2))
    assert judge("gemm", EIGHT, broken(EIGHT, change, slow)).verdict is FAIL


def test_what_has_no_threshold_is_named_beside_what_has_one():
    result = judge("gemm", EIGHT, standin.document(EIGHT))
    assert (result.verdict, result.message) == (PASS, "not judged: fp16, fp32")
    job = standin.job(dtypes=["bf16", "tf32"])
    assert judge("gemm", job, standin.document(job)).message == ""


def test_memory_that_somebody_else_holds_is_told():
    free = 40 << 30
    row = fill(free=free, filled=int(free * 0.95) - (3 << 28))
    result = judge("hbm", EIGHT, broken(EIGHT, (gpu(2, "fill"), row)))
    assert result.verdict is Verdict.WARN
    assert result.message == (
        "GPU 2, all of its memory: only 40960 MiB of 81062 are free, and were looked at"
    )


def test_the_figure_with_the_least_room_is_shown():
    result = judge("gemm", EIGHT, broken(EIGHT, (gpu(5, *BF16), product(700.0))))
    assert result.verdict is PASS
    assert (result.value.name, result.value.value) == ("GPU 5, bf16", 700.0)
    change = (gpu(1, *FP16, "rounding_error"), 3.0)
    result = judge("gemm", VIRTUAL, broken(VIRTUAL, change))
    assert (result.verdict, result.value.name) == (PASS, "GPU 1, bf16, rounding")


@pytest.mark.parametrize(("count", "more"), [(8, "; and 5 more"), (3, "")])
def test_three_faults_are_told_and_the_others_counted(count, more):
    faults = [
        (gpu(index, *BF16), {"dtype": "bf16", "error": f"reason {index}"}) for index in range(count)
    ]
    told = "; ".join(f"GPU {index}, bf16: reason {index}" for index in range(3))
    assert judge("gemm", EIGHT, broken(EIGHT, *faults)).message == told + more


def test_repetitions_may_all_take_as_long():
    times = standin.times(0.25, 20)
    times |= {"time_s_min": 0.25, "time_s_max": 0.25}
    row = {**standin.copy("h2d", CONFIG), **times, "gbs": (1 << 28) / 0.25 / 1e9}
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
    assert (result.verdict, result.message) == (FAIL, "GPU 3: no CUDA there, see cuda")


def test_the_way_through_the_host_is_told():
    change = (("pairs", 0), {**pair(0, 1, 20.0), "way": "host"})
    result = judge("peers", EIGHT, broken(EIGHT, change))
    assert "GPU 0 to 1 (through the host) is 20.0 GB/s" in result.message


def test_a_node_with_one_gpu_has_no_pairs():
    job = standin.job(count=1)
    assert judge("peers", job, standin.document(job)).verdict is Verdict.SKIP
    for check in set(CHECKS) - {"peers"}:
        assert judge(check, job, standin.document(job)).verdict is PASS


def test_a_gpu_with_none_of_the_types_fails():
    job = standin.job(count=1, dtypes=["fp16"])
    document = broken(job, (gpu(0, "gemm", 0, "unsupported"), "none"))
    for check in ("gemm", "repeatable"):
        result = judge(check, job, document)
        assert result.verdict is FAIL
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
    assert (result.verdict, result.message) == (FAIL, message)


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
    assert result.verdict is UNKNOWN
    assert result.message.startswith("no thresholds file for the model tpu_v9: GPU 0")
    assert result.message.endswith("record a baseline")
    assert result.value is not None


def test_what_needs_no_threshold_of_the_model_passes():
    job = standin.job("tpu_v9")
    assert judge("repeatable", job, standin.document(job)).verdict is PASS


def test_a_fault_counts_without_a_threshold_too():
    job = standin.job("tpu_v9")
    result = judge("gemm", job, broken(job, (gpu(0, "gemm", 0, "rounding_error"), 99.0)))
    assert result.verdict is FAIL
    fast = standin.gemm("bf16", dict(job.config), 2501.0, 2502.0)
    result = judge("gemm", job, broken(job, (gpu(0, "gemm", 0), fast)))
    assert result.verdict is FAIL
    assert "more than the hardware can (2500)" in result.message


def test_another_shape_than_that_of_the_threshold_is_not_judged_by_it():
    job = standin.job(gemm_size=4096)
    result = judge("gemm", job, standin.document(job))
    assert result.verdict is UNKNOWN
    assert "no threshold recorded for h100_sxm" in result.message


def test_another_number_of_gpus_than_that_of_the_threshold_is_not_judged_by_it():
    job = standin.job(count=4)
    assert judge("peers", job, standin.document(job)).verdict is UNKNOWN


def test_each_gpu_needs_a_threshold():
    """Boards of one model can differ: what holds for one says nothing of the other."""
    job = standin.job("a100_sxm", count=2, dtypes=["bf16"])
    both = [(gpu(index, "start", "name"), "NVIDIA A100-SXM4-80GB") for index in range(2)]
    rows = [
        (gpu(index, "memory", place), standin.memory(operation, dict(job.config), gbs))
        for index in range(2)
        for place, (operation, gbs) in enumerate({"copy": 1400.0, "triad": 1700.0}.items())
    ]
    assert judge("hbm", job, broken(job, *both, *rows)).verdict is PASS
    other = (gpu(1, "start", "name"), "NVIDIA A100-SXM4-96GB")
    result = judge("hbm", job, broken(job, *both, *rows, other))
    assert result.verdict is UNKNOWN
    assert "GPU 1" in result.message


# --- on a CPU --------------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("hardware", ["virtual", "h100_sxm"])
def test_a_cpu_is_judged_for_what_is_right_and_never_by_the_speed_of_a_gpu(check, hardware):
    result = judge(check, VIRTUAL, standin.document(VIRTUAL), rules_of(hardware))
    assert (result.verdict, result.message) == (PASS, "")
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
    assert result.verdict is FAIL


@pytest.mark.parametrize("check", CHECKS)
def test_figures_of_a_cpu_say_nothing_of_declared_gpus(check):
    job = standin.job(count=2, **{**standin.CPU, "gpus": 2})
    result = judge(check, job, standin.document(job))
    assert result.verdict is FAIL
    assert result.message.startswith("computed on a CPU")
