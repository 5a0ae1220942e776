"""The check of links under load: each fault fails and names its GPU."""

import pytest

from validation.model import Verdict
from validation.payloads import gpu_links
from validation.tests import standin_compute as standin
from validation.tests import standin_health
from validation.tests.judging import judged, put

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE
JOB = standin.job(count=2, dtypes=["bf16"])


def judge(*changes, job=JOB, check="links"):
    """A healthy answer with values changed, paths below `links`; `...` removes one."""
    document = standin.document(job)
    for path, value in changes:
        put(document["measured"]["links"], path, value)
    return judged(check, job, standin.reply(job, document))


def gpu1(*path):
    return ("gpus", 1, *path)


def counted(value, *when, name="replay"):
    """A counter of one NVLink, before the work and after it."""
    return [(gpu1(at, "values", "nvlinks", 3, "errors", name), value) for at in when]


def after(**errors):
    return [item for name, value in errors.items() for item in counted(value, "after", name=name)]


def replays(value):
    return [(gpu1("after", "values", "pcie_replays"), value)]


def unknown(name, reason):
    values = gpu1("before", "values", name)
    return [(values, None), (gpu1("before", "unknown"), [reason(name)])]


def test_healthy_links_pass_and_what_was_seen_is_told():
    result = judge()
    assert (result.verdict, result.message, result.value.value) == (PASS, "", 0)
    assert {metric.name: metric.value for metric in result.metrics} == {
        f"GPU {index} PCIe {what} while it copied": value
        for index in (0, 1)
        for what, value in (("generation", 5), ("lanes", 16))
    }


FAULTS = [
    ([(gpu1("generation"), 1)], FAIL, "GPU 1: PCIe generation 1 of 5 while it copied"),
    ([(gpu1("width"), 8)], FAIL, "GPU 1: 8 PCIe lanes of 16 while it copied"),
    ([(gpu1("width"), 0)], FAIL, "GPU 1: 0 PCIe lanes of 16 while it copied"),
    ([(gpu1("samples"), 0)], UNKNOWN, "GPU 1: NVML did not report its PCIe link while it copied"),
    (unknown("pcie_generation_max", standin_health.unsupported), UNKNOWN, "generation that its"),
    (unknown("pcie_width_max", standin_health.error), FAIL, "GPU 1: does not tell its pcie_width_"),
    (after(replay=1), FAIL, "GPU 1: its NVLinks counted new errors under load (1 replay)"),
    (after(recovery=2), FAIL, "(2 recovery)"),
    (after(crc_flit=1), WARN, "(1 crc_flit)"),
    (after(crc_flit=5999), WARN, "(5999 crc_flit)"),  # 60 s of work
    (after(crc_flit=6000), FAIL, "(6000 crc_flit)"),
    (after(crc_data=3000, crc_flit=3000), FAIL, "(3000 crc_flit, 3000 crc_data)"),
    (replays(8), PASS, ""),
    (replays(9), WARN, "GPU 1: 9 PCIe replays in 60 s of work"),
    (counted(7, "before"), UNKNOWN, "GPU 1: its NVLink counters were reset during the measureme"),
    (counted(7, "before", "after"), PASS, ""),  # before the work: it says nothing
    ([(gpu1("after", "values", "nvlinks"), [])], FAIL, "GPU 1 had different NVLinks before and"),
    ([(gpu1("after", "error"), "NVML: GPU is lost")], FAIL, "gives no answers: NVML: GPU is lost"),
    ([(gpu1("index"), None)], UNKNOWN, "GPU 1: NVML does not list it"),
    ([(gpu1("after"), None)], UNKNOWN, "GPU 1: NVML reported nothing about it before or after"),
    ([(("nvml", "error"), "no driver")], UNKNOWN, "NVML could not be asked: no driver"),
    ([(gpu1("after", "values", "uuid"), "GPU-x")], FAIL, "NVML reported different GPUs before and"),
    (
        [(gpu1(at, "values", "uuid"), "GPU-x") for at in ("before", "after")],
        FAIL,
        "GPU 1 is GPU-gpu1-1, NVML told of GPU-x",
    ),
    # a board without NVLink
    ([(("gpus", 1, at, "values", "nvlinks"), []) for at in ("before", "after")], PASS, ""),
    ([(("gpus", 1), ...)], FAIL, "the links of 1 GPUs, 2 were measured"),
]


@pytest.mark.parametrize(("changes", "verdict", "words"), FAULTS)
def test_each_fault_is_named(changes, verdict, words):
    result = judge(*changes)
    assert result.verdict is verdict
    assert words in result.message
    assert (result.message == "") is (verdict is PASS)


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ([(gpu1("sm_mhz"), 300)], FAIL, "GPU 1: SM clock of 300 MHz at work, 1980 at most"),
        ([(gpu1("sm_mhz"), 1410)], WARN, "GPU 1: SM clock of 1410 MHz at work, 1980 at most"),
        ([(gpu1("sm_mhz"), 1500)], PASS, ""),
        (
            [(gpu1("sm_mhz"), 300), (gpu1("held_by"), "application clocks setting")],
            FAIL,
            "GPU 1: SM clock of 300 MHz at work, 1980 at most; held back by application clocks se",
        ),
        ([(gpu1("sm_mhz"), None)], UNKNOWN, "GPU 1: NVML did not report its clock while it"),
        ([(gpu1("samples"), 0)], UNKNOWN, "GPU 1: NVML did not report its clock while it copied"),
        (unknown("clock_sm_max_mhz", standin_health.unsupported), UNKNOWN, "GPU 1: NVML does not"),
        (unknown("clock_sm_max_mhz", standin_health.error), FAIL, "GPU 1: does not tell its clock"),
        ([(gpu1("before"), None)], UNKNOWN, "GPU 1: NVML reported nothing about it before or"),
        ([(gpu1("before", "index"), 0)], FAIL, "GPU 1: NVML reported another GPU"),
        ([(("nvml", "error"), "no driver")], UNKNOWN, "NVML could not be asked: no driver"),
    ],
)
def test_a_clock_that_stays_low_at_work_is_named(changes, verdict, words):
    result = judge(*changes, check="load_clocks")
    assert result.verdict is verdict
    assert result.message.startswith(words)
    assert (result.message == "") is (verdict is PASS)


def under(load, **changes):
    place = gpu_links.LOADS.index(load)
    return gpu1("loads", place), standin.load(load, **changes)


def held(load, reason, share):
    return [under(load, held_by=[{"reason": reason, "share": share}])]


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        (held("products", "software power cap", 1.0), PASS, ""),
        (held("products", "software thermal slowdown", 0.01), PASS, ""),
        (
            held("products", "software thermal slowdown", 0.2),
            WARN,
            "GPU 1: software thermal slowdown in 20% of the answers under products",
        ),
        (held("memory", "software thermal slowdown", 0.6), FAIL, "in 60% of the answers under mem"),
        (held("products", "hardware thermal slowdown", 0.01), FAIL, "hardware thermal slowdown in"),
        (held("memory", "hardware power brake", 0.01), FAIL, "GPU 1: hardware power brake in 1%"),
        (held("products", "hardware slowdown", 0.5), PASS, ""),  # as clocks change
        (held("products", "hardware slowdown", 1), FAIL, "hardware slowdown in 100% of the answ"),
        ([under("products", temperature_c=87)], FAIL, "GPU 1: 87 °C under products, the board slo"),
        ([under("products", temperature_c=86)], PASS, ""),
        ([under("products", temperature_c=None, sm_mhz=None, power_w=None)], PASS, ""),
        ([under("memory", samples=0)], UNKNOWN, "GPU 1: NVML did not report anything under memor"),
        ([(gpu1("loads"), [])], FAIL, "GPU 1: NVML was asked under [], not ['products', 'memory']"),
        (held("memory", "idle", 1.5), FAIL, "more answers of NVML named a reason than there were"),
        (
            [(gpu1("before", "values", "temperature_slowdown_c"), None),
             (gpu1("before", "unknown"), [standin_health.unsupported("temperature_slowdown_c")])],
            PASS,
            "",
        ),
    ],
)  # fmt: skip
def test_what_slows_a_gpu_down_under_load_is_named(changes, verdict, words):
    result = judge(*changes, check="load_clocks")
    assert result.verdict is verdict
    assert words in result.message
    assert (result.message == "") is (verdict is PASS)


def test_clock_power_and_heat_under_load_are_told():
    result = judge(check="load_clocks")
    figures = {metric.name: metric.value for metric in result.metrics}
    assert figures["GPU 1 SM clock under products"] == 1500
    assert figures["GPU 1 power under memory"] == 690
    assert figures["GPU 0 temperature under products"] == 62
    assert figures["GPU 0 held back under products"] == "software power cap 90%"


def rows(**changes):
    kept = {"correctable": 0, "uncorrectable": 0, "pending": "no", "failure": "no"}
    return [(gpu1("after", "values", "remapped_rows"), {**kept, **changes})]


def ecc(kind, when, count):
    return (gpu1(when, "values", f"ecc_volatile_{kind}"), count)


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ([ecc("uncorrected", "after", 1)], FAIL, "GPU 1: 1 uncorrected ECC errors under load"),
        ([ecc("corrected", "after", 3)], WARN, "GPU 1: 3 corrected ECC errors under load"),
        ([ecc("corrected", when, 3) for when in ("before", "after")], PASS, ""),
        ([ecc("corrected", "before", 3)], UNKNOWN, "GPU 1: its counter of corrected ECC errors"),
        (rows(correctable=1), FAIL, "GPU 1: 1 memory rows were taken out of use under load"),
        (rows(uncorrectable=2), FAIL, "GPU 1: 2 memory rows were taken out of use under load"),
        (rows(pending="yes"), FAIL, "GPU 1: a memory row waits for a reset to be remapped"),
        (rows(failure="yes"), FAIL, "GPU 1: remapping a memory row failed"),
        ([(gpu1("after"), None)], UNKNOWN, "GPU 1: NVML reported nothing about it before or"),
        ([(gpu1("after", "values", "uuid"), "GPU-x")], FAIL, "NVML reported different GPUs before"),
        ([(("nvml", "error"), "no driver")], UNKNOWN, "NVML could not be asked: no driver"),
        (
            [(gpu1("after", "values", "remapped_rows"), None),
             (gpu1("after", "unknown"), [standin_health.error("remapped_rows"),
                                         standin_health.unsupported("retired_pages")])],
            FAIL,
            "GPU 1: does not tell its remapped_rows",
        ),
    ],
)  # fmt: skip
def test_new_errors_of_memory_are_named(changes, verdict, words):
    result = judge(*changes, check="load_ecc")
    assert result.verdict is verdict
    assert result.message.startswith(words) or words in result.message
    assert (result.message == "") is (verdict is PASS)


def test_pages_that_are_retired_under_load_are_named():
    """Of boards before Ampere."""
    changes = []
    for when, double in (("before", 0), ("after", 1)):
        values = {"single_bit": 2, "double_bit": double, "pending": "no"}
        changes += [
            (("gpus", 1, when, "values", "retired_pages"), values),
            (("gpus", 1, when, "unknown"), []),
        ]
    result = judge(*changes, check="load_ecc")
    assert (result.verdict, result.message) == (
        FAIL,
        "GPU 1: 1 memory pages were taken out of use under load",
    )


def test_what_memory_counted_is_told():
    figures = {metric.name: metric.value for metric in judge(check="load_ecc").metrics}
    assert figures == {
        f"GPU {index} {kind} ECC errors under load": 0
        for index in (0, 1)
        for kind in ("uncorrected", "corrected")
    }


def test_a_gpu_that_did_not_start_is_the_matter_of_another_check():
    document = standin.document(JOB)
    document["measured"]["gpus"][1]["start"] = {"error": "lost"}
    result = judged("links", JOB, standin.reply(JOB, document))
    assert (result.verdict, result.message) == (UNKNOWN, "GPU 1: did not work, see cuda")
    assert result.value is not None  # so the node is not taken out for it


def test_a_cpu_has_no_such_links():
    job = standin.job("virtual", count=2)
    result = judge(job=job)
    assert (result.verdict, result.message) == (FAIL, "a CPU has no such links")
