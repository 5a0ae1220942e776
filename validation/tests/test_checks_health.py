"""The checks of the health payload: each judges what it should."""

import copy
import json

import pytest

from cluster.readers import xids
from validation import thresholds
from validation.checks import clocks, driver, ecc, mig, nvlink, pcie, processes, xid
from validation.checks.registry import describe
from validation.model import Outcome, Tier, Verdict
from validation.tests import standin_health as standin

CHECKS = {
    module.NAME: module for module in (driver, ecc, xid, pcie, nvlink, clocks, processes, mig)
}
JOB = standin.job_for()
RULES = thresholds.load("h100_sxm")

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE


def judge(check, found, job=JOB, **changes):
    result = CHECKS[check].evaluate(job, standin.reply_to(job, found, **changes), RULES)
    assert result.check == check
    assert result.tier is Tier.NODE
    assert result.subject == job.subject
    assert "\n" not in result.message
    assert len(result.message) <= 320
    return result


def with_values(*gpus, **values):
    """A healthy node on which these GPUs (all without any) have these values."""
    measured = standin.measured()
    for gpu in measured["gpus"]:
        if not gpus or gpu["index"] in gpus:
            gpu["values"].update(values)
    return measured


def without(name, *gpus, reason=standin.unsupported):
    measured = with_values(*gpus, **{name: None})
    for gpu in measured["gpus"]:
        if not gpus or gpu["index"] in gpus:
            gpu["unknown"] = [item for item in gpu["unknown"] if item["name"] != name]
            gpu["unknown"].append(reason(name))
    return measured


def with_links(*gpus, **changes):
    """These GPUs' NVLink 3 is changed."""
    measured = standin.measured()
    for index in gpus:
        measured["gpus"][index]["values"]["nvlinks"][3].update(changes)
    return measured


def with_events(*events, **log):
    measured = standin.measured()
    measured["kernel_log"].update(events=list(events), **log)
    return measured


def lost(index, why="NVML: GPU is lost (code 15)"):
    measured = standin.measured()
    measured["gpus"][index].update(error=why, unknown=[])
    measured["gpus"][index]["values"] = dict.fromkeys(measured["gpus"][index]["values"])
    return measured


def rows(**changes):
    healthy = {"correctable": 2, "uncorrectable": 1, "pending": "no", "failure": "no"}
    return {**healthy, **changes}


def reasons(always, sometimes=None):
    return {"always": always, "sometimes": sometimes or always, "reasons": "…"}


# --- all checks ------------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS)
def test_a_healthy_node_passes(check):
    result = judge(check, standin.measured())
    assert (result.verdict, result.message) == (PASS, "")
    assert result.value is not None
    assert result.threshold is not None
    assert result.proof.job_id == "17"
    assert result.proof.hosts == ("gpu1",)


@pytest.mark.parametrize("check", sorted(set(CHECKS) - {"driver"}))
def test_a_lost_gpu_is_the_drivers_matter_and_the_others_are_judged(check):
    assert judge(check, lost(1)).verdict is PASS
    if check not in ("xid",):
        measured = lost(0)
        measured["gpus"][1]["values"].update(
            mig="on",
            pcie_width=4,
            ecc_volatile_uncorrected=1,
            clock_reasons=reasons(128),
            processes=[{"pid": 1, "name": None, "memory_mb": None}],
            nvlinks=[],
        )
        result = judge(check, measured)
        assert result.verdict is FAIL
        assert result.message.startswith("GPU 1: ")


@pytest.mark.parametrize("check", sorted(set(CHECKS) - {"driver", "xid"}))
def test_where_no_gpu_answers_nothing_is_known(check):
    measured = standin.measured(1)
    measured["gpus"][0]["error"] = "NVML: GPU is lost (code 15)"
    job = standin.job_for(1)
    result = judge(check, measured, job)
    assert (result.verdict, result.message) == (UNKNOWN, "no GPU answers, see driver")


READ = {
    "ecc": "ecc_volatile_uncorrected",
    "pcie": "pcie_width",
    "nvlink": "nvlinks",
    "clocks": "temperature_c",
    "processes": "processes",
    "mig": "mig",
    "driver": "recovery_action",
}


@pytest.mark.parametrize(("check", "name"), READ.items())
def test_an_error_in_place_of_a_value_fails_and_names_the_gpu(check, name):
    result = judge(check, without(name, 1, reason=standin.error))
    assert result.verdict is FAIL
    assert result.message == f"GPU 1: does not tell its {name}: NVML: Unknown Error (code 999)"


@pytest.mark.parametrize(("check", "name"), READ.items())
def test_a_value_that_is_missing_fails(check, name):
    measured = standin.measured()
    del measured["gpus"][1]["values"][name]
    result = judge(check, measured)
    assert result.verdict is FAIL
    assert name in result.message


@pytest.mark.parametrize(("check", "name"), READ.items())
def test_no_value_and_no_reason_for_it_fails(check, name):
    result = judge(check, with_values(1, **{name: None}))
    assert result.verdict is FAIL
    assert result.message == f"GPU 1 has neither a value nor a reason for none: {name}"


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("value", [-1, True, 1.5, "nan", "yes", [], {}, [1], [{}], None])
def test_a_value_of_a_wrong_type_fails(check, value):
    if check == "xid":
        return
    name = READ[check]
    if (name, value) in (("nvlinks", []), ("processes", [])):
        return
    assert not judge(check, with_values(1, **{name: value})).verdict.green


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stdout": ""}, "no answer on stdout"),
        ({"exit_code": 1}, "exit status 1"),
        ({"outcome": Outcome.RUN_LIMIT, "exit_code": None}, "and was cancelled"),
    ],
)
def test_a_job_that_did_not_answer_fails(check, changes, said):
    result = judge(check, standin.measured(), **changes)
    assert result.verdict is FAIL
    assert said in result.message


@pytest.mark.parametrize("check", sorted(set(CHECKS) - {"xid"}))
def test_a_list_that_lacks_a_gpu_fails(check):
    measured = standin.measured()
    del measured["gpus"][0]
    result = judge(check, measured)
    assert result.verdict is FAIL
    assert result.message == "NVML counts 2 GPUs, the answer is about 1"


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_says_what_why_and_what_to_do(check):
    info = describe(CHECKS[check])
    assert info.name == check
    assert info.what
    assert info.why
    assert info.advice
    assert info.commands


# --- what each one judges --------------------------------------------------------------------

CASES = [
    # driver
    ("driver", lost(1), FAIL, "GPU 1: gives no answers: NVML: GPU is lost (code 15)"),
    (
        "driver",
        with_values(recovery_action="GPU reset"),
        FAIL,
        "GPU 0, 1: the driver asks for a GPU reset",
    ),
    ("driver", with_values(1, name=""), FAIL, "GPU 1: has no name or no UUID"),
    ("driver", with_values(uuid="GPU-1"), FAIL, "NVML lists one GPU twice"),
    (
        "driver",
        with_values(1, memory_total_mb=40000),
        FAIL,
        "GPU 1: has 40000 MiB of memory, others of the node 81559",
    ),
    ("driver", without("gsp_firmware"), PASS, ""),
    ("driver", without("recovery_action"), PASS, ""),
    # ecc
    (
        "ecc",
        with_values(0, ecc_volatile_uncorrected=1),
        FAIL,
        "GPU 0: 1 uncorrectable ECC errors since the driver was loaded",
    ),
    (
        "ecc",
        with_values(1, ecc_aggregate_uncorrected=4),
        WARN,
        "GPU 1: 4 uncorrectable ECC errors in the board's life",
    ),
    ("ecc", with_values(ecc_volatile_corrected=9, ecc_aggregate_corrected=99), PASS, ""),
    ("ecc", with_values(remapped_rows=rows()), PASS, ""),
    (
        "ecc",
        with_values(1, remapped_rows=rows(pending="yes")),
        FAIL,
        "GPU 1: a memory row waits for a reset to be remapped",
    ),
    (
        "ecc",
        with_values(1, remapped_rows=rows(failure="yes")),
        FAIL,
        "GPU 1: remapping a memory row failed",
    ),
    (
        "ecc",
        with_values(1, remapped_rows=rows(failure="maybe")),
        FAIL,
        "failure is 'maybe', neither yes nor no",
    ),
    ("ecc", with_values(1, ecc="off", ecc_pending="off"), FAIL, "GPU 1: ECC is off, on by the"),
    (
        "ecc",
        with_values(ecc="off", ecc_pending="off", ecc_default="off"),
        PASS,
        "GPU 0, 1: ECC is off",
    ),
    ("ecc", with_values(1, ecc_pending="off"), WARN, "GPU 1: ECC will be off after the next"),
    ("ecc", without("remapped_rows"), PASS, ""),
    # xid
    ("xid", with_events(standin.event(63)), PASS, ""),
    ("xid", with_events(standin.event(13), standin.event(31)), PASS, ""),
    (
        "xid",
        with_events(standin.event(79)),
        FAIL,
        "GPU 1: XID 79 (GPU has fallen off the bus)",
    ),
    (
        "xid",
        with_events(standin.event(48, pci="0000:1B:00", count=3)),
        FAIL,
        "GPU 0: XID 48 3 times (uncorrectable ECC error)",
    ),
    (
        "xid",
        with_events(standin.event(79, pci="0000:99:00")),
        FAIL,
        "XID 79 at PCI 0000:99:00 (GPU has fallen off the bus)",
    ),
    (
        "xid",
        with_events(standin.event(92)),
        WARN,
        "GPU 1: XID 92 (high rate of correctable ECC errors)",
    ),
    ("xid", with_events(standin.event(999)), UNKNOWN, "GPU 1: XID 999 (not in the table of"),
    (
        "xid",
        with_events(standin.event(145, "RLW_REMAP Fatal XC0 i0 Link 00")),
        FAIL,
        "GPU 1: XID 145 (NVLink error (RLW))",
    ),
    (
        "xid",
        with_events(standin.event(145, "RLW_CTRL Nonfatal XC0 i0 Link 00")),
        WARN,
        "GPU 1: XID 145 (NVLink error (RLW))",
    ),
    ("xid", with_events(standin.event(145, "")), FAIL, "GPU 1: XID 145 (NVLink error (RLW))"),
    (
        "xid",
        with_events(
            standin.event(
                154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
            )
        ),
        FAIL,
        "GPU 1: XID 154 (GPU recovery action changed: Node Reboot Required)",
    ),
    (
        "xid",
        with_events(
            standin.event(
                154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
            )
        ),
        PASS,
        "",
    ),
    ("xid", with_events(standin.event(154, "?")), FAIL, "GPU 1: XID 154 (GPU recovery action"),
    (
        "xid",
        with_events(standin.event(28006, "Non-fatal, Link 46", kind="sxid")),
        WARN,
        "SXID 28006 at PCI 0000:2b:00 (Non-fatal, Link 46)",
    ),
    (
        "xid",
        with_events(standin.event(20034, "Fatal, Link 30", kind="sxid")),
        FAIL,
        "SXID 20034 at PCI 0000:2b:00 (Fatal, Link 30)",
    ),
    (
        "xid",
        with_events(complete="no", begins_s=7200.0),
        WARN,
        "journalctl no longer contains the first 2.0 h after the boot",
    ),
    (
        "xid",
        with_events(complete="no", begins_s=None),
        WARN,
        "journalctl does not say how far back it goes",
    ),
    (
        "xid",
        with_events(source=None, error="dmesg: Operation not permitted"),
        UNKNOWN,
        "the kernel log may not be read: dmesg: Operation not permitted",
    ),
    ("xid", with_events(standin.event(79, kind="bug")), FAIL, "1 events of the kind 'bug'"),
    ("xid", with_events(standin.event(79, count=0)), FAIL, "0 events of the kind 'xid'"),
    ("xid", with_events(standin.event(79, pci="?")), FAIL, "'?' is no PCI address"),
    # pcie
    ("pcie", with_values(1, pcie_width=8), FAIL, "GPU 1: 8 PCIe lanes of 16"),
    (
        "pcie",
        with_values(1, pcie_width=8, pcie_width_max=8),
        WARN,
        "GPU 1: the slot has 8 PCIe lanes, the board 16",
    ),
    ("pcie", with_values(1, pcie_width=0, pcie_width_max=0), FAIL, "GPU 1: no PCIe lanes"),
    ("pcie", with_values(pcie_generation=1), PASS, ""),
    ("pcie", with_values(clock_reasons=reasons(0)), PASS, ""),
    (
        "pcie",
        with_values(1, pcie_generation=4, clock_reasons=reasons(0)),
        FAIL,
        "GPU 1: PCIe generation 4 of 5, and not idle",
    ),
    (
        "pcie",
        with_values(1, pcie_generation=4, pcie_generation_max=4),
        WARN,
        "GPU 1: the slot has PCIe generation 4, the board 5",
    ),
    (
        "pcie",
        with_values(1, pcie_generation=0, pcie_generation_max=0),
        FAIL,
        "GPU 1: no PCIe generation",
    ),
    ("pcie", without("pcie_width"), UNKNOWN, "GPU 0, 1: NVML does not know the width of"),
    ("pcie", without("pcie_generation", 1), UNKNOWN, "GPU 1: NVML does not know the generation"),
    ("pcie", without("pcie_replays"), PASS, ""),
    # nvlink
    ("nvlink", with_links(1, state="down"), FAIL, "GPU 1: NVLink 3 is down, of 18"),
    (
        "nvlink",
        with_links(1, state="NVML: Unknown Error (code 999)"),
        FAIL,
        "GPU 1: NVLink 3 does not tell its state: NVML: Unknown Error (code 999)",
    ),
    ("nvlink", with_values(1, nvlinks=[]), FAIL, "GPU 1: has 0 NVLinks, 18 expected"),
    ("nvlink", without("nvlinks", 1), FAIL, "GPU 1: has 0 NVLinks, 18 expected"),
    (
        "nvlink",
        with_links(1, errors={**standin.NO_ERRORS, "replay": 7, "crc_flit": 2}),
        WARN,
        "GPU 1: its NVLinks counted errors (2 crc_flit, 7 replay)",
    ),
    (
        "nvlink",
        with_links(1, errors={**standin.NO_ERRORS, "recovery_successful": 3}),
        PASS,
        "",
    ),
    (
        "nvlink",
        with_values(1, fabric={"state": "not started", "status": 0, "clique": 0, "health": None}),
        FAIL,
        "GPU 1: the fabric is not started, not completed",
    ),
    (
        "nvlink",
        with_values(1, fabric={"state": "completed", "status": 6, "clique": 0, "health": None}),
        FAIL,
        "GPU 1: joining the fabric failed (NVML code 6)",
    ),
    (
        "nvlink",
        with_values(1, fabric={"state": "completed", "status": 0, "clique": 0, "health": 1}),
        FAIL,
        "GPU 1: its bandwidth in the fabric is degraded",
    ),
    (
        "nvlink",
        with_values(1, fabric={"state": "completed", "status": 0, "clique": 0, "health": 0x4}),
        WARN,
        "GPU 1: a route in the fabric is being recovered",
    ),
    (
        "nvlink",
        with_values(1, fabric={"state": "completed", "status": 0, "clique": 0, "health": 0x500}),
        FAIL,
        "GPU 1: it is configured wrongly in the fabric",
    ),
    (
        "nvlink",
        with_values(fabric={"state": "completed", "status": 0, "clique": 0, "health": 0x61AA}),
        PASS,
        "",
    ),
    ("nvlink", without("fabric"), PASS, ""),
    # clocks
    (
        "clocks",
        with_values(1, clock_reasons=reasons(0, 0x40)),
        FAIL,
        "GPU 1: clocks are reduced: hardware thermal slowdown",
    ),
    (
        "clocks",
        with_values(1, clock_reasons=reasons(0x80)),
        FAIL,
        "GPU 1: clocks are reduced: hardware power brake",
    ),
    (
        "clocks",
        with_values(1, clock_reasons=reasons(0x20)),
        FAIL,
        "GPU 1: clocks are reduced: software thermal slowdown",
    ),
    (
        "clocks",
        with_values(1, clock_reasons=reasons(0x8)),
        FAIL,
        "GPU 1: clocks are reduced: hardware slowdown",
    ),
    ("clocks", with_values(1, clock_reasons=reasons(0, 0x8)), PASS, ""),
    ("clocks", with_values(1, clock_reasons=reasons(0x4)), PASS, ""),
    (
        "clocks",
        with_values(1, clock_reasons=reasons(0x2)),
        WARN,
        "GPU 1: clocks are limited by a setting",
    ),
    ("clocks", with_values(1, temperature_c=86), PASS, ""),
    (
        "clocks",
        with_values(1, temperature_c=87),
        FAIL,
        "GPU 1: 87 °C, the board slows down from 87 °C on",
    ),
    (
        "clocks",
        with_values(1, power_limit_mw=500500),
        WARN,
        "GPU 1: power limit 500.5 W, 700 W by default",
    ),
    ("clocks", with_values(persistence="off"), WARN, "GPU 0, 1: persistence mode is off"),
    ("clocks", without("temperature_slowdown_c"), PASS, ""),
    ("clocks", without("clock_reasons", 1), UNKNOWN, "GPU 1: NVML does not know"),
    # processes
    (
        "processes",
        with_values(1, processes=[{"pid": 7, "name": "/opt/a b", "memory_mb": 5}]),
        FAIL,
        "GPU 1: used by process 7 (/opt/a b)",
    ),
    (
        "processes",
        with_values(
            1, processes=[{"pid": pid, "name": None, "memory_mb": None} for pid in range(9)]
        ),
        FAIL,
        "GPU 1: used by processes 0, 1, 2 and 6 more",
    ),
    (
        "processes",
        with_values(1, processes=[{"pid": pid, "name": None, "memory_mb": 2} for pid in range(3)]),
        FAIL,
        "GPU 1: used by processes 0, 1, 2",
    ),
    (
        "processes",
        with_values(processes=[{"pid": 7, "name": "nvidia-cuda-mps-server", "memory_mb": -1}]),
        FAIL,
        "measured.gpus[0].values.processes[0].memory_mb is no whole number: -1",
    ),
    (
        "processes",
        with_values(
            processes=[{"pid": 7, "name": "/usr/bin/nvidia-cuda-mps-server", "memory_mb": 30}]
        ),
        PASS,
        "",
    ),
    ("processes", without("processes"), UNKNOWN, "GPU 0, 1: NVML does not know this board's"),
    ("processes", with_values(1, processes=[{"pid": 7}]), FAIL, "the answer has no"),
    # mig
    ("mig", with_values(1, mig="on"), FAIL, "GPU 1: MIG is on (no instance), a whole GPU is"),
    (
        "mig",
        with_values(1, mig="on", mig_instances=[{"name": "X MIG 1g.10gb", "uuid": "MIG-1"}]),
        FAIL,
        "GPU 1: MIG is on (1 of 1g.10gb), a whole GPU is declared",
    ),
    ("mig", with_values(1, mig_pending="on"), WARN, "GPU 1: MIG will be on after the next reset"),
    ("mig", without("mig"), PASS, ""),
]


@pytest.mark.parametrize(("check", "found", "verdict", "message"), CASES)
def test_what_is_found_is_judged(check, found, verdict, message):
    result = judge(check, copy.deepcopy(found))
    assert result.verdict is verdict
    assert result.message.startswith(message)
    assert bool(result.message) == bool(message)
    if verdict is FAIL and result.value is not None and message.startswith("GPU 1:"):
        assert result.value.value == 1


def test_a_driver_that_cannot_be_asked_fails_and_the_rest_is_unknown():
    measured = standin.measured()
    measured["nvml"] = {
        **dict.fromkeys(measured["nvml"]),
        "error": "NVML: Driver Not Loaded (code 9)",
    }
    measured["gpus"] = []
    result = judge("driver", measured)
    assert result.verdict is FAIL
    assert result.message == "NVML cannot be asked: NVML: Driver Not Loaded (code 9)"
    assert result.value.value == 0
    assert judge("xid", measured).verdict is PASS
    for check in sorted(set(CHECKS) - {"driver", "xid"}):
        result = judge(check, measured)
        assert result.verdict is UNKNOWN
        assert result.message == (
            "NVML could not be asked, see driver: NVML: Driver Not Loaded (code 9)"
        )


def test_the_driver_counts_what_is_declared():
    result = judge("driver", standin.measured(1))
    assert result.verdict is FAIL
    assert result.message == "NVML counts 1 GPUs, 2 declared: without /dev/nvidia1"
    assert result.value.value == 1
    result = judge("driver", standin.measured(3))
    assert (result.verdict, result.message) == (FAIL, "NVML counts 3 GPUs, 2 declared")


@pytest.mark.parametrize(("seconds", "verdict"), [(15.0, PASS), (15.1, WARN)])
def test_half_of_the_time_is_slow(seconds, verdict):
    measured = standin.measured()
    measured["gpus"][1]["seconds"] = seconds
    result = judge("driver", measured)
    assert result.verdict is verdict
    if verdict is WARN:
        assert result.message == "GPU 1: took 15.1 s to answer NVML, of 30 s at most"


SHOWN: dict[str, dict[str, object]] = {
    "driver": {
        "driver version": "580.82.07",
        "NVML version": "13.580.82.07",
        "CUDA of the driver": "13.0",
        "GPU 1 name": "NVIDIA H100 80GB HBM3",
        "GPU 1 vbios": "96.00.74.00.01",
        "GPU 1 gsp_firmware": "580.82.07",
        "GPU 1 memory_total": (81559, "MiB"),
        "GPU 1 bar1_total": (131072, "MiB"),
    },
    "ecc": {
        "GPU 1 volatile corrected": (0, "errors"),
        "GPU 1 volatile uncorrected": (0, "errors"),
        "GPU 1 aggregate corrected": (0, "errors"),
        "GPU 1 aggregate uncorrected": (0, "errors"),
        "GPU 1 rows remapped, correctable": (0, "rows"),
        "GPU 1 rows remapped, uncorrectable": (0, "rows"),
    },
    "pcie": {
        "GPU 1 generation": 5,
        "GPU 1 generation, most": 5,
        "GPU 1 lanes": 16,
        "GPU 1 lanes, most": 16,
        "GPU 1 replays": 0,
    },
    "nvlink": {"GPU 1 NVLinks up": (18, "links"), "GPU 1 NVLink errors": (0, "errors")},
    "clocks": {
        "GPU 1 SM clock": (345, "MHz"),
        "GPU 1 SM clock, most": (1980, "MHz"),
        "GPU 1 memory clock": (2619, "MHz"),
        "GPU 1 memory clock, most": (2619, "MHz"),
        "GPU 1 temperature": (34, "°C"),
        "GPU 1 power": (71, "W"),
        "GPU 1 power limit": (700, "W"),
        "GPU 1 power limit, most": (700, "W"),
        "GPU 1 clock reasons": "idle",
    },
    "processes": {"GPU 1 processes": 0, "GPU 1 memory used": (600, "MiB")},
    "mig": {"GPU 1 MIG": "off", "GPU 1 MIG instances": 0},
    "xid": {"log": "journalctl", "XID 63": 2},
}


def shown(check, found):
    """The metrics of the node and of GPU 1, with their units."""
    metrics = judge(check, found).metrics
    return {
        metric.name: (metric.value, metric.unit) if metric.unit else metric.value
        for metric in metrics
        if not metric.name.startswith("GPU 0 ")
    }


@pytest.mark.parametrize("check", CHECKS)
def test_what_was_measured_is_shown(check):
    measured = standin.measured()
    measured["kernel_log"]["events"] = [standin.event(63, count=2)]
    assert shown(check, measured) == SHOWN[check]


@pytest.mark.parametrize(
    ("check", "name", "gone"),
    [
        ("driver", "bar1_total_mb", ["GPU 1 bar1_total"]),
        ("ecc", "ecc_volatile_corrected", ["GPU 1 volatile corrected"]),
        ("pcie", "pcie_replays", ["GPU 1 replays"]),
        ("nvlink", "nvlinks", ["GPU 1 NVLinks up", "GPU 1 NVLink errors"]),
        ("clocks", "power_mw", ["GPU 1 power"]),
        ("processes", "memory_used_mb", ["GPU 1 memory used"]),
        ("mig", "mig", ["GPU 1 MIG", "GPU 1 MIG instances"]),
    ],
)
def test_what_a_board_does_not_have_is_not_shown(check, name, gone):
    measured = without(name)
    expected = {key: value for key, value in SHOWN[check].items() if key not in gone}
    assert shown(check, measured) == expected


def test_instances_are_counted():
    instances = [{"name": "X MIG 1g.10gb", "uuid": "MIG-1"}]
    metrics = shown("mig", with_values(1, mig="on", mig_instances=instances))
    assert metrics == {"GPU 1 MIG": "on", "GPU 1 MIG instances": 1}


def test_boards_of_two_names_are_not_compared():
    assert judge("driver", with_values(1, name="NVIDIA L4", memory_total_mb=23034)).verdict is PASS


def test_a_value_and_a_reason_for_none_fails():
    measured = standin.measured()
    measured["gpus"][1]["unknown"].append(standin.error("mig"))
    result = judge("mig", measured)
    assert result.verdict is FAIL
    assert result.message == "GPU 1 has both a value and a reason for none: mig"


def test_pages_of_older_boards_are_judged():
    pages = {"single_bit": 4, "double_bit": 6, "pending": "no"}

    def judged(**changes):
        measured = with_values(1, retired_pages={**pages, **changes})
        measured["gpus"][1]["unknown"] = []
        return judge("ecc", measured)

    assert judged().verdict is PASS
    result = judged(double_bit=7)
    assert result.verdict is WARN
    assert result.message == "GPU 1: 11 memory pages are retired, more than 10"
    assert judged(pending="yes").message == "GPU 1: a memory page waits for a reset to be retired"


def test_faults_of_both_gpus_are_told_once_and_the_worst_first():
    measured = with_values(ecc_aggregate_uncorrected=2)
    measured["gpus"][1]["values"]["remapped_rows"]["failure"] = "yes"
    result = judge("ecc", measured)
    assert result.verdict is FAIL
    assert result.message == (
        "GPU 1: remapping a memory row failed; "
        "GPU 0, 1: 2 uncorrectable ECC errors in the board's life"
    )
    assert (result.value.value, result.value.unit) == (1, "GPUs")


# --- NVLink of other boards ------------------------------------------------------------------


def bridged(*up):
    """Boards without NVSwitch, with so many of 12 links up."""
    measured = standin.measured(len(up))
    for gpu, count in zip(measured["gpus"], up, strict=True):
        state = ["up"] * count + ["down"] * (12 - count)
        gpu["values"]["nvlinks"] = [
            {"link": link, **standin.LINK, "state": state[link]} for link in range(12)
        ]
        gpu["values"]["fabric"] = {"state": "not supported", "status": 0, "clique": 0, "health": 0}
    return measured


@pytest.mark.parametrize(
    ("up", "verdict", "message"),
    [
        ((0, 0), PASS, ""),
        ((4, 4), PASS, ""),
        ((12, 11), WARN, "GPU 1: 11 NVLinks are up, 12 on others of the node"),
    ],
)
def test_bridges_are_compared_with_each_other(up, verdict, message):
    result = judge("nvlink", bridged(*up), standin.job_for(2, "a100_pcie"))
    assert (result.verdict, result.message) == (verdict, message)


def test_a_gpu_alone_has_no_peer():
    measured = standin.measured(1)
    for link in measured["gpus"][0]["values"]["nvlinks"]:
        link["state"] = "down"
    job = standin.job_for(1)
    assert judge("nvlink", measured, job).verdict is PASS
    measured["gpus"][0]["values"]["fabric"]["state"] = "in progress"
    result = judge("nvlink", measured, job)
    assert result.verdict is WARN
    assert result.message == "GPU 0: the fabric is in progress, not completed"


def test_a_board_in_a_fabric_has_all_its_links_whatever_it_is_declared_as():
    job = standin.job_for(2, "virtual")
    result = judge("nvlink", with_links(1, state="down"), job)
    assert (result.verdict, result.message) == (FAIL, "GPU 1: NVLink 3 is down, of 18")


# --- severities ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "severity"),
    [
        ((54, 79), "fatal"),
        ((46, 48, 62, 64, 74, 95, 109, 119, 120, 140, 158), "reset"),
        ((13, 31, 43, 69), "application"),
        ((32, 92, 94), "watch"),
        ((45, 63), "informational"),
        ((144, 150), "text"),
        ((154,), "recovery"),
    ],
)
def test_severities_are_those_of_the_catalog(codes, severity):
    known = xids.load().by_code
    assert {known[code].severity for code in codes} == {severity}


def test_severity_follows_from_the_catalogs_action():
    for code, entry in xids.load().by_code.items():
        if entry.action == "RESET_GPU":
            assert entry.severity == "reset", code
        if entry.action in ("RESTART_BM", "RESTART_VM", "CHECK_MECHANICALS"):
            assert entry.severity == "fatal", code
        if entry.severity == "application":
            assert entry.action in ("RESTART_APP", "IGNORE"), code


def test_the_source_is_said_with_the_verdict():
    threshold = judge("xid", standin.measured()).threshold
    assert "docs.nvidia.com/deploy/xid-errors" in threshold.source
    assert "version 1" in threshold.source


def test_the_stand_in_is_json():
    assert json.loads(json.dumps(standin.measured())) == standin.measured()
