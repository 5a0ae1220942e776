"""The check of links under load: each fault fails and names its GPU."""

import pytest

from validation import thresholds
from validation.checks import links
from validation.model import Verdict
from validation.tests import standin_compute as standin
from validation.tests import standin_health

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE
JOB = standin.job(count=2, dtypes=["bf16"])
RULES = thresholds.load("h100_sxm")


def judge(*changes, job=JOB):
    """A healthy answer with values changed, paths below `links`; `...` removes one."""
    document = standin.document(job)
    for path, value in changes:
        place = document["measured"]["links"]
        for key in path[:-1]:
            place = place[key]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value
    result = links.evaluate(job, standin.reply(job, document), RULES)
    assert result.check == "links"
    assert "\n" not in result.message
    assert len(result.message) <= 320
    return result


def after(name, value, index=1):
    return ("gpus", index, "after", "values", "nvlinks", 3, "errors", name), value


def unknown(name, reason, when="before"):
    values = ("gpus", 1, when, "values", name)
    return [(values, None), (("gpus", 1, when, "unknown"), [reason(name)])]


def test_healthy_links_pass_and_what_was_seen_is_told():
    result = judge()
    assert (result.verdict, result.message, result.value.value) == (PASS, "", 0)
    assert {metric.name: metric.value for metric in result.metrics} == {
        "GPU 0 PCIe generation while it copied": 5,
        "GPU 0 PCIe lanes while it copied": 16,
        "GPU 1 PCIe generation while it copied": 5,
        "GPU 1 PCIe lanes while it copied": 16,
    }


FAULTS = [
    ([(("gpus", 1, "generation"), 1)], FAIL, "GPU 1: PCIe generation 1 of 5 while it copied"),
    ([(("gpus", 1, "width"), 8)], FAIL, "GPU 1: 8 PCIe lanes of 16 while it copied"),
    ([(("gpus", 1, "width"), 0)], FAIL, "GPU 1: 0 PCIe lanes of 16 while it copied"),
    (
        [(("gpus", 1, "samples"), 0)],
        UNKNOWN,
        "GPU 1: NVML did not report its PCIe link while it copied",
    ),
    (
        unknown("pcie_generation_max", standin_health.unsupported),
        UNKNOWN,
        "GPU 1: NVML does not know the generation that its PCIe link can have",
    ),
    (
        unknown("pcie_width_max", standin_health.error),
        FAIL,
        "GPU 1: does not tell its pcie_width_max: NVML: Unknown Error (code 999)",
    ),
    (
        [after("replay", 1)],
        FAIL,
        "GPU 1: its NVLinks counted new errors under load (1 replay)",
    ),
    (
        [after("recovery", 2)],
        FAIL,
        "GPU 1: its NVLinks counted new errors under load (2 recovery)",
    ),
    (
        [after("crc_flit", 1)],
        WARN,
        "GPU 1: its NVLinks counted new errors under load (1 crc_flit)",
    ),
    ([after("crc_flit", 5999)], WARN, "(5999 crc_flit)"),  # 60 s of work
    ([after("crc_flit", 6000)], FAIL, "(6000 crc_flit)"),
    ([after("crc_data", 3000), after("crc_flit", 3000)], FAIL, "(3000 crc_flit, 3000 crc_data)"),
    ([(("gpus", 1, "after", "values", "pcie_replays"), 8)], PASS, ""),
    (
        [(("gpus", 1, "after", "values", "pcie_replays"), 9)],
        WARN,
        "GPU 1: 9 PCIe replays in 60 s of work",
    ),
    (
        [(("gpus", 1, "before", "values", "nvlinks", 3, "errors", "replay"), 7)],
        UNKNOWN,
        "GPU 1: its NVLink counters were reset during the measurements",
    ),
    (
        [(("gpus", 1, "after", "values", "nvlinks"), [])],
        FAIL,
        "GPU 1 had different NVLinks before and after the measurements",
    ),
    (
        [(("gpus", 1, "after", "error"), "NVML: GPU is lost (code 15)")],
        FAIL,
        "GPU 1: gives no answers: NVML: GPU is lost (code 15)",
    ),
    ([(("gpus", 1, "index"), None)], UNKNOWN, "GPU 1: NVML does not list it"),
    (
        [(("gpus", 1, "after"), None)],
        UNKNOWN,
        "GPU 1: NVML reported nothing about it before or after the measurements",
    ),
    (
        [(("nvml", "error"), "no driver")],
        UNKNOWN,
        "NVML could not be asked: no driver",
    ),
    (
        [(("gpus", 1, "after", "values", "uuid"), "GPU-x")],
        FAIL,
        "GPU 1: NVML reported different GPUs before and after the measurements",
    ),
    (
        [(("gpus", 1, when, "values", "uuid"), "GPU-x") for when in ("before", "after")],
        FAIL,
        "GPU 1 is GPU-gpu1-1, NVML told of GPU-x",
    ),
    ([(("gpus", 1), ...)], FAIL, "the links of 1 GPUs, 2 were measured"),
]


@pytest.mark.parametrize(("changes", "verdict", "said"), FAULTS)
def test_each_fault_is_named(changes, verdict, said):
    result = judge(*changes)
    assert (result.verdict, result.message) == (verdict, result.message)
    assert said in result.message
    assert (result.message == "") is (verdict is PASS)


def test_what_was_counted_before_the_work_says_nothing():
    counted = [
        (("gpus", 1, when, "values", "nvlinks", 3, "errors", "replay"), 7)
        for when in ("before", "after")
    ]
    assert judge(*counted).verdict is PASS


def test_a_board_without_nvlink_passes():
    nothing: list[object] = []
    places = [("gpus", 1, when, "values", "nvlinks") for when in ("before", "after")]
    assert judge(*((place, nothing) for place in places)).verdict is PASS


def test_a_gpu_that_did_not_start_is_the_matter_of_another_check():
    document = standin.document(JOB)
    document["measured"]["gpus"][1]["start"] = {"error": "lost"}
    result = links.evaluate(JOB, standin.reply(JOB, document), RULES)
    assert (result.verdict, result.message) == (UNKNOWN, "GPU 1: did not work, see cuda")
    assert result.value is not None  # so the node is not taken out for it


def test_a_cpu_has_no_such_links():
    job = standin.job("virtual", count=2)
    result = links.evaluate(job, standin.reply(job, standin.document(job)), RULES)
    assert (result.verdict, result.message) == (FAIL, "a CPU has no such links")
