"""The checks of the health payload: each judges what it should."""

import pytest

from cluster.readers import xids
from validation import thresholds
from validation.model import Tier, Verdict
from validation.tests import standin_health as standin
from validation.tests.judging import judged

CHECKS = standin.NAMES
JOB = standin.job_for()
RULES = thresholds.load("h100_sxm")

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE


def judge(check, readings, job=JOB):
    result = judged(check, job, standin.reply_to(job, readings), RULES)
    assert result.tier is Tier.NODE
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


def with_events(*events, **log):
    measured = standin.measured()
    measured["kernel_log"].update(events=list(events), **log)
    return measured


def links(**changes):
    """A GPU's NVLinks, of which number 3 is changed."""
    made = standin.gpu(1)["values"]["nvlinks"]
    made[3].update(changes)
    return made


def fabric(**changes):
    return {"state": "completed", "status": 0, "clique": 0, "health": None, **changes}


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


def using(*pids, name=None, memory_mb=None):
    """The processes on a GPU."""
    return [{"pid": pid, "name": name, "memory_mb": memory_mb} for pid in pids]


# --- all checks ------------------------------------------------------------------------------


@pytest.mark.parametrize("check", sorted(set(CHECKS) - {"driver"}))
def test_a_lost_gpu_is_the_drivers_matter_and_the_others_are_judged(check):
    assert judge(check, lost(1)).verdict is PASS
    if check != "xid":
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


@pytest.mark.parametrize("check", ["nvlink", "processes"])
@pytest.mark.parametrize("value", [[1], [{}]])
def test_a_list_of_something_else_fails(check, value):
    assert not judge(check, with_values(1, **{READ[check]: value})).verdict.green


@pytest.mark.parametrize("check", sorted(set(CHECKS) - {"xid"}))
def test_a_list_that_lacks_a_gpu_fails(check):
    measured = standin.measured()
    del measured["gpus"][0]
    result = judge(check, measured)
    assert result.verdict is FAIL
    assert result.message == "NVML counts 2 GPUs, the answer is about 1"


# --- what each one judges --------------------------------------------------------------------


def gpu_1(**values):
    """The second GPU has these values; and what begins a message about it."""
    return with_values(1, **values), "GPU 1: "


def both(**values):
    return with_values(**values), "GPU 0, 1: "


def node(readings):
    """No message about it begins with a GPU."""
    return readings, ""


def logged(code, text="", **changes):
    """An event of the second GPU."""
    return with_events(standin.event(code, text, **changes)), "GPU 1: "


def switched(code, text):
    return node(with_events(standin.event(code, text, kind="sxid")))


RECOVERY = "GPU recovery action changed from"
CASES = {
    "driver": [
        ((lost(1), "GPU 1: "), FAIL, "gives no answers: NVML: GPU is lost (code 15)"),
        (both(recovery_action="GPU reset"), FAIL, "the driver asks for a GPU reset"),
        (gpu_1(name=""), FAIL, "has no name or no UUID"),
        (node(with_values(uuid="GPU-1")), FAIL, "NVML lists one GPU twice"),
        (gpu_1(memory_total_mb=40000), FAIL, "has 40000 MiB of memory, others of the node 81559"),
        (node(without("gsp_firmware")), PASS, ""),
        (node(without("recovery_action")), PASS, ""),
    ],
    "ecc": [
        (
            gpu_1(ecc_volatile_uncorrected=1),
            FAIL,
            "1 uncorrectable ECC errors since the driver was",
        ),
        (
            gpu_1(ecc_aggregate_uncorrected=4),
            WARN,
            "4 uncorrectable ECC errors in the board's life",
        ),
        (both(ecc_volatile_corrected=9, ecc_aggregate_corrected=99), PASS, ""),
        (both(remapped_rows=rows()), PASS, ""),
        (gpu_1(remapped_rows=rows(pending="yes")), FAIL, "a memory row waits for a reset to be"),
        (gpu_1(remapped_rows=rows(failure="yes")), FAIL, "remapping a memory row failed"),
        (
            node(with_values(1, remapped_rows=rows(failure="maybe"))),
            FAIL,
            "failure is 'maybe', neither yes nor no",
        ),
        (gpu_1(ecc="off", ecc_pending="off"), FAIL, "ECC is off, on by the"),
        (both(ecc="off", ecc_pending="off", ecc_default="off"), PASS, "ECC is off"),
        (gpu_1(ecc_pending="off"), WARN, "ECC will be off after the next"),
        (node(without("remapped_rows")), PASS, ""),
        (gpu_1(ecc_volatile_corrected=10**7), FAIL, "10,000,000 corrected ECC errors since the"),
        (gpu_1(ecc_volatile_corrected=2 * 10**6), WARN, "2,000,000 corrected ECC errors since"),
        (gpu_1(ecc_aggregate_corrected=10**7), WARN, "10,000,000 corrected ECC errors in the"),
        (gpu_1(ecc_aggregate_corrected=3 * 10**7), FAIL, "30,000,000 corrected ECC errors in the"),
        (gpu_1(ecc_volatile_corrected_sram=10_001), FAIL, "10,001 corrected ECC errors of caches"),
        (both(ecc_aggregate_corrected_sram=10_000), PASS, ""),
        (gpu_1(remapped_rows=rows(correctable=900)), FAIL, "901 memory rows are remapped, more"),
        (gpu_1(remapped_rows=rows(uncorrectable=300)), WARN, "302 memory rows are remapped"),
        (node(without("ecc_volatile_corrected_sram")), PASS, ""),
    ],
    "xid": [
        (logged(63), PASS, ""),
        (node(with_events(standin.event(13), standin.event(31))), PASS, ""),
        (logged(79), FAIL, "XID 79 (GPU has fallen off the bus)"),
        (
            (with_events(standin.event(48, pci="0000:1B:00", count=3)), "GPU 0: "),
            FAIL,
            "XID 48 3 times (uncorrectable ECC error)",
        ),
        (
            node(with_events(standin.event(79, pci="0000:99:00"))),
            FAIL,
            "XID 79 at PCI 0000:99:00 (GPU has fallen off the bus)",
        ),
        (logged(92), WARN, "XID 92 (high rate of correctable ECC errors)"),
        (logged(999, "a new word"), WARN, "XID 999 (not in the table of severities: a new word)"),
        (logged(61), WARN, "XID 61 (not in the table of"),
        (logged(162), PASS, ""),
        (logged(167), FAIL, "XID 167 (fatal timeout of PCIe)"),
        (logged(168), WARN, "XID 168 (less memory"),
        (logged(145, "RLW_REMAP Fatal XC0 i0 Link 00"), FAIL, "XID 145 (NVLink error (RLW))"),
        (logged(145, "RLW_CTRL Nonfatal XC0 i0 Link 00"), WARN, "XID 145 (NVLink error (RLW))"),
        (logged(145), FAIL, "XID 145 (NVLink error (RLW))"),
        (
            logged(154, f"{RECOVERY} 0x0 (None) to 0x2 (Node Reboot Required)"),
            FAIL,
            "XID 154 (GPU recovery action changed: Node Reboot Required)",
        ),
        (logged(154, f"{RECOVERY} 0x1 (GPU Reset Required) to 0x0 (None)"), PASS, ""),
        (logged(154, "?"), FAIL, "XID 154 (GPU recovery action"),
        (switched(28006, "Non-fatal, Link 46"), WARN, "SXID 28006 at PCI 0000:2b:00 (Non-fatal"),
        (switched(20034, "Fatal, Link 30"), FAIL, "SXID 20034 at PCI 0000:2b:00 (Fatal, Link 30)"),
        (
            node(with_events(complete="no", begins_s=7200.0)),
            WARN,
            "journalctl no longer contains the first 2.0 h after the boot",
        ),
        (
            node(with_events(complete="no", begins_s=None)),
            WARN,
            "journalctl does not say how far back it goes",
        ),
        (
            node(with_events(source=None, error="dmesg: Operation not permitted")),
            UNKNOWN,
            "the kernel log may not be read: dmesg: Operation not permitted",
        ),
        (node(with_events(standin.event(79, kind="bug"))), FAIL, "1 events of the kind 'bug'"),
        (node(with_events(standin.event(79, count=0))), FAIL, "0 events of the kind 'xid'"),
        (node(with_events(standin.event(79, pci="?"))), FAIL, "'?' is no PCI address"),
    ],
    "pcie": [
        (gpu_1(pcie_width=8), FAIL, "8 PCIe lanes of 16"),
        (gpu_1(pcie_width=8, pcie_width_max=8), WARN, "the slot has 8 PCIe lanes, the board 16"),
        (gpu_1(pcie_width=0, pcie_width_max=0), FAIL, "no PCIe lanes"),
        (gpu_1(bar1_total_mb=256), FAIL, "BAR1 of 256 MiB for 81559 MiB of memory"),
        (both(bar1_total_mb=81559), PASS, ""),
        (node(without("bar1_total_mb")), PASS, ""),
        (both(pcie_generation=1), PASS, ""),
        (both(clock_reasons=reasons(0)), PASS, ""),
        (
            gpu_1(pcie_generation=4, clock_reasons=reasons(0)),
            FAIL,
            "PCIe generation 4 of 5, and not",
        ),
        (
            gpu_1(pcie_generation=4, pcie_generation_max=4),
            WARN,
            "the slot has PCIe generation 4, the",
        ),
        (gpu_1(pcie_generation=0, pcie_generation_max=0), FAIL, "no PCIe generation"),
        ((without("pcie_width"), "GPU 0, 1: "), UNKNOWN, "NVML does not know the width of"),
        ((without("pcie_generation", 1), "GPU 1: "), UNKNOWN, "NVML does not know the generation"),
        (node(without("pcie_replays")), PASS, ""),
    ],
    "nvlink": [
        (gpu_1(nvlinks=links(state="down")), FAIL, "NVLink 3 is down, of 18"),
        (gpu_1(nvlinks=links(state="NVML: x")), FAIL, "NVLink 3 does not tell its state: NVML: x"),
        (gpu_1(nvlinks=[]), FAIL, "has 0 NVLinks, 18 expected"),
        (gpu_1(nvlinks=links()[:17]), FAIL, "has 17 NVLinks, 18 expected"),
        ((without("nvlinks", 1), "GPU 1: "), FAIL, "has 0 NVLinks, 18 expected"),
        (
            gpu_1(nvlinks=links(errors={**standin.NO_ERRORS, "replay": 7, "crc_flit": 2})),
            WARN,
            "its NVLinks counted errors (2 crc_flit, 7 replay)",
        ),
        (gpu_1(nvlinks=links(errors={**standin.NO_ERRORS, "recovery_successful": 3})), PASS, ""),
        (
            gpu_1(fabric=fabric(state="not started")),
            FAIL,
            "the fabric is not started, not completed",
        ),
        (gpu_1(fabric=fabric(status=6)), FAIL, "joining the fabric failed (NVML code 6)"),
        (gpu_1(fabric=fabric(health=1)), FAIL, "its bandwidth in the fabric is degraded"),
        (gpu_1(fabric=fabric(health=0x4)), WARN, "a route in the fabric is being recovered"),
        (gpu_1(fabric=fabric(health=0x500)), FAIL, "it is configured wrongly in the fabric"),
        (both(fabric=fabric(health=0x61AA)), PASS, ""),
        (node(without("fabric")), PASS, ""),
    ],
    "clocks": [
        (gpu_1(clock_reasons=reasons(0, 0x40)), FAIL, "clocks are reduced: hardware thermal slow"),
        (gpu_1(clock_reasons=reasons(0x80)), FAIL, "clocks are reduced: hardware power brake"),
        (gpu_1(clock_reasons=reasons(0x20)), FAIL, "clocks are reduced: software thermal slowdown"),
        (gpu_1(clock_reasons=reasons(0x8)), FAIL, "clocks are reduced: hardware slowdown"),
        (gpu_1(clock_reasons=reasons(0, 0x8)), PASS, ""),
        (gpu_1(clock_sm_app_mhz=300), FAIL, "application clock 300 MHz, 1980 MHz by default"),
        (gpu_1(clock_sm_app_mhz=1410), WARN, "application clock 1410 MHz, 1980 MHz by default"),
        (node(without("clock_sm_app_mhz")), PASS, ""),
        (gpu_1(clock_reasons=reasons(0x4)), PASS, ""),
        (gpu_1(clock_reasons=reasons(0x2)), WARN, "clocks are limited by a setting"),
        (gpu_1(temperature_c=86), PASS, ""),
        (gpu_1(temperature_c=87), FAIL, "87 °C, the board slows down from 87 °C on"),
        (gpu_1(power_limit_mw=500500), WARN, "power limit 500.5 W, 700 W by default"),
        (both(persistence="off"), WARN, "persistence mode is off"),
        (node(without("temperature_slowdown_c")), PASS, ""),
        ((without("clock_reasons", 1), "GPU 1: "), UNKNOWN, "NVML does not know"),
    ],
    "processes": [
        (gpu_1(processes=using(7, name="/opt/a b")), FAIL, "used by process 7 (/opt/a b)"),
        (gpu_1(processes=using(*range(9))), FAIL, "used by processes 0, 1, 2 and 6 more"),
        (gpu_1(processes=using(*range(3), memory_mb=2)), FAIL, "used by processes 0, 1, 2"),
        (
            node(with_values(processes=using(7, name="nvidia-cuda-mps-server", memory_mb=-1))),
            FAIL,
            "measured.gpus[0].values.processes[0].memory_mb is no whole number: -1",
        ),
        (both(processes=using(7, name="/usr/bin/nvidia-cuda-mps-server", memory_mb=30)), PASS, ""),
        ((without("processes"), "GPU 0, 1: "), UNKNOWN, "NVML does not know this board's"),
        (node(with_values(1, processes=[{"pid": 7}])), FAIL, "the answer has no"),
    ],
    "mig": [
        (gpu_1(mig="on"), FAIL, "MIG is on (no instance), a whole GPU is"),
        (
            gpu_1(mig="on", mig_instances=[{"name": "X MIG 1g.10gb", "uuid": "MIG-1"}]),
            FAIL,
            "MIG is on (1 of 1g.10gb), a whole GPU is declared",
        ),
        (gpu_1(mig_pending="on"), WARN, "MIG will be on after the next reset"),
        (node(without("mig")), PASS, ""),
    ],
}


@pytest.mark.parametrize(
    ("check", "readings", "verdict", "words"),
    [(check, *case) for check, cases in CASES.items() for case in cases],
)
def test_what_is_found_is_judged(check, readings, verdict, words):
    measured, gpus = readings
    result = judge(check, measured)
    assert result.verdict is verdict
    assert result.message.startswith(f"{gpus}{words}" if words else "")
    assert bool(result.message) == bool(words)
    if verdict is FAIL and result.value is not None and gpus == "GPU 1: ":
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
        "GPU 1 application clock": (1980, "MHz"),
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


def shown(check, readings):
    """The metrics of the node and of GPU 1, with their units."""
    metrics = judge(check, readings).metrics
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
    result = judge("nvlink", with_values(1, nvlinks=links(state="down")), job)
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
    assert "version 2" in threshold.source
