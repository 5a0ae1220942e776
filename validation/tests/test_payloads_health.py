"""The health payload under the real nvidia-ml-py, over a stand-in for the driver's library.

Each fault is a line of a description; it fails the check that it belongs to and no other, and names
the GPU.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import CannotRun, DataError
from cluster.readers import kernel_log, nvml, xids
from tests.standins.nvml import library
from validation import thresholds
from validation.model import Verdict
from validation.payloads import compute, gpu_links, health
from validation.payloads.config import load
from validation.slurm.job import bundle
from validation.tests import standin_health as standin
from validation.tests.judging import judged

ROOT = Path(__file__).parents[2]
CHECKS = standin.NAMES

BOOT = "[    0.000000] Linux version 6.1.0-40-amd64"


@pytest.fixture(scope="session")
def fake(tmp_path_factory):
    """The library's path. Without a compiler these tests fail: they would prove nothing."""
    try:
        return library.build(tmp_path_factory.mktemp("nvml"))
    except library.NoCompiler as missing:
        pytest.fail(str(missing))


@pytest.fixture
def node(fake, tmp_path, monkeypatch):
    """Measures a node that is described by these lines below healthy ones."""
    monkeypatch.setattr(kernel_log, "FILES", ())
    monkeypatch.setattr(kernel_log, "DEVICE", tmp_path / "kmsg")
    command = ("echo", BOOT)
    monkeypatch.setattr(kernel_log, "COMMANDS", {"journalctl": command, "dmesg": ("false",)})

    def measure(*faults, count=2, board="h100_sxm", limit_s=20.0):
        description = tmp_path / "description"
        description.write_text(library.describe(count, board, *faults))
        for key, value in library.environment(fake, description).items():
            monkeypatch.setenv(key, value)
        return json.loads(json.dumps(health.measure(health.Config(nvml_timeout_s=limit_s))))

    return measure


def verdicts(measured, count=2, model="h100_sxm"):
    """Each check's result for what a payload measured."""
    job = standin.job_for(count, model)
    reply = standin.reply_to(job, measured)
    return {name: judged(name, job, reply) for name in CHECKS}


def assert_fails_alone(results, check):
    assert results[check].verdict is Verdict.FAIL
    others = {name: result.verdict for name, result in results.items() if name != check}
    assert set(others.values()) == {Verdict.PASS}, [r.message for r in results.values()]


# --- a healthy node --------------------------------------------------------------------------


def test_a_healthy_node_is_what_the_other_tests_judge(node):
    measured = node()
    for gpu in measured["gpus"]:
        assert 0 < gpu.pop("seconds") < 20
    expected = standin.measured()
    for gpu in expected["gpus"]:
        del gpu["seconds"]
        gpu["values"]["uuid"] = f"GPU-{gpu['index']:08x}-0000-4000-8000-000000000000"
    assert measured["nvml"].pop("seconds") > 0
    del expected["nvml"]["seconds"]
    assert measured["gpus"] == expected["gpus"]
    assert measured["nvml"] == expected["nvml"]
    assert set(measured) == set(expected)
    assert set(measured["questions"]) == set(expected["questions"])
    assert {**measured["kernel_log"], "source": "journalctl"} == expected["kernel_log"]


@pytest.mark.parametrize("board", ["h100_sxm", "l4", "v100_sxm"])
def test_every_check_of_a_healthy_board_passes(node, board):
    results = verdicts(node(board=board), model=board)
    assert {name: result.verdict for name, result in results.items()} == dict.fromkeys(
        CHECKS, Verdict.PASS
    ), [result.message for result in results.values()]


def test_eight_gpus_are_asked_at_once(node):
    measured = node(
        *(f"gpu.{index}.delay_ms.nvmlDeviceGetName = 400" for index in range(8)), count=8
    )
    assert [gpu["index"] for gpu in measured["gpus"]] == list(range(8))
    assert {result.verdict for result in verdicts(measured, 8).values()} == {Verdict.PASS}


def instances(*lines, count=7):
    """Two GPUs with MIG on, and a line of description for each instance's name and UUID."""
    described = ["gpu.*.mig = 1"]
    for number in range(count):
        described += [
            f"gpu.*.mig.{number}.name = NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            f"gpu.*.mig.{number}.uuid = MIG-{number}",
            f"gpu.*.mig.{number}.memory_total_mb = 9984",
            f"gpu.*.mig.{number}.memory_used_mb = 1",
        ]
    return [*described, *lines]


def on_instances(measured):
    job = standin.job_for(2)
    gpus = replace(job.nodes[0].gpus, mig=(("1g.10gb", 7),))
    job = replace(job, nodes=(replace(job.nodes[0], gpus=gpus),))
    reply = standin.reply_to(job, measured)
    rules = thresholds.of_node(job.nodes[0])
    return {name: judged(name, job, reply, rules) for name in CHECKS if name != "nvlink"}


def test_an_ordinary_user_is_told_of_instances_one_by_one(node):
    measured = node(*instances())
    results = on_instances(measured)
    assert {result.verdict for result in results.values()} == {Verdict.PASS}, results
    assert [gpu["values"]["memory_total_mb"] for gpu in measured["gpus"]] == [7 * 9984] * 2
    assert len(measured["gpus"][1]["values"]["mig_instances"]) == 7


def test_a_stranger_on_one_instance_is_seen(node):
    results = on_instances(node(*instances("gpu.1.mig.6.process.0 = 4711 512 python")))
    assert results["processes"].verdict is Verdict.FAIL
    assert results["processes"].message == "GPU 1: used by process 4711 (python)"
    assert results["mig"].verdict is Verdict.PASS


def test_uuids_of_instances_are_told_in_the_order_of_the_gpus(node):
    node("gpu.0.mig = 1", "gpu.0.mig.0.name = a", "gpu.0.mig.0.uuid = MIG-a", *second())
    assert nvml.mig_uuids(40) == ["MIG-a", "MIG-b", "MIG-c"]
    node()
    with pytest.raises(CannotRun, match="NVML lists no instance of MIG"):
        nvml.mig_uuids(40)


def second():
    for number, uuid in ((0, "MIG-b"), (3, "MIG-c")):
        yield f"gpu.1.mig.{number}.name = b"
        yield f"gpu.1.mig.{number}.uuid = {uuid}"


# --- faults ----------------------------------------------------------------------------------

SILENT = "gives no answers:"
IS_LOST = "NVML: GPU is lost (code 15)"
NO_PERMISSION = "NVML: Insufficient Permissions (code 4)"
# What is wrong with GPU 1, whose matter it is and what it says of that GPU.
FAULTS = [
    ("driver", f"{SILENT} {IS_LOST}", "error.* = GPU_IS_LOST"),
    ("driver", f"{SILENT} {IS_LOST}", "error.nvmlDeviceGetPowerUsage = GPU_IS_LOST"),
    ("driver", f"{SILENT} {NO_PERMISSION}", "error.nvmlDeviceGetHandleByIndex_v2 = NO_PERMISSION"),
    (
        "driver",
        f"{SILENT} NVML: GPU requires restart (code 16)",
        "error.nvmlDeviceGetName = RESET_REQUIRED",
    ),
    ("driver", "the driver asks for a node reboot", "field.230 = 2"),
    ("driver", "has 40960 MiB of memory, others of the node 81559", "memory_total_mb = 40960"),
    (
        "ecc",
        "3 uncorrectable ECC errors since the driver was loaded",
        "ecc_volatile_uncorrected = 3",
    ),
    ("ecc", "ECC is off, on by the board's default", "ecc = 0", "ecc_pending = 0"),
    (
        "ecc",
        f"does not tell its ecc_volatile_uncorrected: {NO_PERMISSION}",
        "error.nvmlDeviceGetTotalEccErrors = NO_PERMISSION",
    ),
    ("ecc", "a memory row waits for a reset to be remapped", "remapped_rows_pending = 1"),
    ("ecc", "remapping a memory row failed", "remapped_rows_failure = 1"),
    ("nvlink", "the fabric is in progress, not completed", "fabric_state = 2"),
    ("nvlink", "joining the fabric failed (NVML code 999)", "fabric_status = 999"),
    ("nvlink", "a route in the fabric is unhealthy", "fabric_health = 0x10"),
    ("nvlink", "NVLink 7 is down, of 18", "nvlink.7.active = 0"),
    (
        "nvlink",
        "NVLink 7 does not tell its state: NVML: Unknown Error (code 999)",
        "nvlink.7.active = UNKNOWN",
    ),
    ("nvlink", "has 12 NVLinks, 18 expected", "nvlinks = 12"),
    (
        "clocks",
        "clocks are reduced: hardware thermal slowdown, hardware slowdown",
        "clock_reasons = 0x48",
    ),
    ("clocks", "clocks are reduced: hardware power brake", "clock_reasons = 0x88,0x80,0x80"),
    ("clocks", "91 °C, the board slows down from 87 °C on", "temperature_c = 91"),
    (
        "mig",
        "MIG is on (2 of 1g.10gb), a whole GPU is declared",
        "mig = 1",
        *(f"mig.{number}.name = NVIDIA H100 80GB HBM3 MIG 1g.10gb" for number in (0, 1)),
        *(f"mig.{number}.uuid = MIG-{number}" for number in (0, 1)),
    ),
    ("pcie", "8 PCIe lanes of 16", "pcie_width = 8"),
    ("pcie", "PCIe generation 3 of 5, and not idle", "pcie_generation = 3", "clock_reasons = 0"),
    ("processes", "used by process 4242 (python3 a.py)", "process.0 = 4242 512 python3 a.py"),
    (
        "processes",
        f"does not tell its processes: {NO_PERMISSION}",
        "error.nvmlDeviceGetComputeRunningProcesses_v3 = NO_PERMISSION",
    ),
]


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("check", "words", "faults"), [(check, said, faults) for check, said, *faults in FAULTS]
)
def test_a_fault_of_one_gpu_fails_its_check_and_no_other(node, check, words, faults):
    results = verdicts(node(*(f"gpu.1.{fault}" for fault in faults)))
    assert results[check].message == f"GPU 1: {words}"
    assert_fails_alone(results, check)


def test_a_wrong_count_says_which_device_is_missing(node):
    measured = node("count = 1", "gpu.0.minor = 1")
    results = verdicts(measured)
    assert results["driver"].message == "NVML counts 1 GPUs, 2 declared: without /dev/nvidia0"
    assert_fails_alone(results, "driver")


@pytest.mark.parametrize("span", ["forever", "60000"])
def test_a_gpu_that_hangs_is_left_behind_and_named(node, span):
    started = time.monotonic()
    measured = node(f"gpu.1.delay_ms.nvmlDeviceGetFieldValues = {span}", limit_s=2.5)
    assert time.monotonic() - started < 8
    results = verdicts(measured)
    assert results["driver"].message == (
        "GPU 1: gives no answers: NVML did not answer within 2.5 s "
        "when it was asked for recovery_action"
    )
    assert measured["gpus"][1]["values"]["vbios"] == "96.00.74.00.01"  # what it said before is kept
    assert_fails_alone(results, "driver")


def test_what_hung_is_gone_afterwards(node):
    node("gpu.1.delay_ms.nvmlDeviceGetName = forever", limit_s=1.0)
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    assert not [command for command in commands if b"nvml.answer" in command]


def test_a_slow_gpu_is_a_warning(node):
    measured = node("gpu.1.delay_ms.nvmlDeviceGetName = 2600", limit_s=5.0)
    result = verdicts(measured)["driver"]
    assert result.verdict is Verdict.WARN
    assert result.message.startswith("GPU 1: took ")
    assert result.message.endswith(" of 5 s at most")


def unknown_but_for_the_driver(results, message):
    assert results["driver"].verdict is Verdict.FAIL
    assert results["driver"].message == message
    assert results["driver"].value.value == 0
    assert results["xid"].verdict is Verdict.PASS  # the kernel's log needs no NVML
    for name in set(CHECKS) - {"driver", "xid"}:
        assert results[name].verdict is Verdict.INCONCLUSIVE
        assert results[name].message.startswith("NVML could not be asked, see driver: ")


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (
            "error.nvmlInit = LIB_RM_VERSION_MISMATCH",
            "NVML: RM has detected an NVML/RM version mismatch. (code 18)",
        ),
        ("error.nvmlInit = DRIVER_NOT_LOADED", "NVML: Driver Not Loaded (code 9)"),
        ("error.nvmlDeviceGetCount_v2 = UNKNOWN", "NVML: Unknown Error (code 999)"),
        (
            "delay_ms.nvmlInit = forever",
            "NVML did not answer within 1 s when it was asked for nvmlInit",
        ),
    ],
)
def test_a_driver_that_cannot_be_asked_at_all(node, faults, message):
    results = verdicts(node(faults, limit_s=1.0))
    unknown_but_for_the_driver(results, f"NVML cannot be asked: {message}")


def test_without_the_library(node, monkeypatch):
    node()
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nonexistent")
    measured = health.measure(health.Config())
    message = "NVML: NVML Shared Library Not Found (code 12)"
    unknown_but_for_the_driver(verdicts(measured), f"NVML cannot be asked: {message}")


def test_without_pynvml(node, monkeypatch, tmp_path):
    (tmp_path / "pynvml.py").write_text("raise ImportError('no such file')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    measured = node()
    assert measured["nvml"]["error"] == "pynvml cannot be imported: no such file"
    assert measured["gpus"] == []


def test_a_library_that_crashes_is_named(node, monkeypatch, tmp_path):
    script = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    (tmp_path / "pynvml.py").write_text(script)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert node()["nvml"]["error"] == "the process that asks NVML ended with signal 11"


# --- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"), [("INVALID_ARGUMENT", "unsupported"), ("UNKNOWN", "error")]
)
def test_a_driver_that_does_not_know_the_recovery_action_is_no_fault(node, answer, kind):
    measured = node(f"gpu.*.error.nvmlDeviceGetFieldValues = {answer}")
    unknown = {item["name"]: item["kind"] for item in measured["gpus"][0]["unknown"]}
    assert unknown["recovery_action"] == kind
    expected = Verdict.PASS if kind == "unsupported" else Verdict.FAIL
    assert verdicts(measured)["driver"].verdict is expected


def test_an_older_driver_is_asked_in_its_own_words(node):
    measured = node(
        "gpu.*.error.nvmlDeviceGetCurrentClocksEventReasons = FUNCTION_NOT_FOUND",
        "fabric_version = 2",
        "gpu.*.fabric_version = 2",
        "gpu.0.fabric_health = 0x22",
        "gpu.1.error.nvmlDeviceGetGpuFabricInfoV = FUNCTION_NOT_FOUND",
    )
    first, second = (gpu["values"] for gpu in measured["gpus"])
    assert first["clock_reasons"]["reasons"] == "idle"
    assert first["fabric"]["health"] == 0x22
    assert second["fabric"] == {"state": "completed", "status": 0, "clique": 0, "health": None}
    assert {result.verdict for result in verdicts(measured).values()} == {Verdict.PASS}


def test_reasons_that_come_and_go_are_told_from_those_that_last(node):
    reasons = node("gpu.0.clock_reasons = 0x8,0x4,0xC")["gpus"][0]["values"]["clock_reasons"]
    assert reasons == {
        "always": 0,
        "sometimes": 12,
        "reasons": "software power cap, hardware slowdown",
    }


@pytest.mark.parametrize(
    ("mask", "names"), [(0, []), (0x401, ["idle", "reliability"]), (0x800, ["bit 11"])]
)
def test_bits_have_names(mask, names):
    assert nvml.clock_reasons(mask) == names


def test_processes_of_others_have_no_name(node):
    measured = node(
        "gpu.0.process.0 = 77 10",
        "gpu.0.process.1 = 78 20 nvidia-cuda-mps-server",
    )
    assert measured["gpus"][0]["values"]["processes"] == [
        {"pid": 77, "name": None, "memory_mb": 10},
        {"pid": 78, "name": "nvidia-cuda-mps-server", "memory_mb": 20},
    ]


def test_counters_of_links_are_kept_for_each_link(node):
    measured = node(
        "gpu.0.nvlink.4.replay = 12", "gpu.*.field.214 = 1", "gpu.0.nvlink.5.active = 0"
    )
    links = measured["gpus"][0]["values"]["nvlinks"]
    assert (links[4]["errors"]["replay"], links[3]["errors"]["replay"]) == (12, 0)
    assert links[4]["errors"]["recovery_failed"] == 1
    assert links[5]["state"] == "down"
    assert set(links[5]["errors"].values()) == {None}


def test_the_constants_are_those_of_pynvml():
    pynvml = pytest.importorskip("pynvml")
    assert nvml.NOT_SUPPORTED == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert nvml.FUNCTION_NOT_FOUND == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert nvml.GPU_IS_LOST == pynvml.NVML_ERROR_GPU_IS_LOST
    assert nvml.RESET_REQUIRED == pynvml.NVML_ERROR_RESET_REQUIRED
    assert nvml.VERSION_MISMATCH == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    assert nvml.DEPRECATED == pynvml.NVML_ERROR_DEPRECATED
    assert nvml.FABRIC_STATES[pynvml.NVML_GPU_FABRIC_STATE_COMPLETED] == "completed"
    assert nvml.RECOVERY_ACTIONS[pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT] == "node reboot"
    bits = {
        "idle": pynvml.nvmlClocksEventReasonGpuIdle,
        "application clocks setting": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
        "software power cap": pynvml.nvmlClocksEventReasonSwPowerCap,
        "hardware slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
        "sync boost": pynvml.nvmlClocksEventReasonSyncBoost,
        "software thermal slowdown": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        "hardware thermal slowdown": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
        "hardware power brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
        "display clock setting": pynvml.nvmlClocksEventReasonDisplayClockSetting,
        "board limit": pynvml.nvmlClocksThrottleReasonBoardLimit,
        "reliability": pynvml.nvmlClocksThrottleReasonReliability,
    }
    assert {name: 1 << bit for bit, name in enumerate(nvml.CLOCK_REASONS)} == bits


# --- how it travels --------------------------------------------------------------------------


def test_it_runs_from_an_archive_that_only_its_process_has_open(fake, tmp_path):
    """As on a node: the archive lies in memory, and the processes that ask NVML need it too."""
    description = tmp_path / "description"
    description.write_text(library.describe(2))
    script = (
        "import json, os, sys\n"
        "archive = os.fdopen(os.memfd_create('plumbline'), 'w+b')\n"
        "archive.write(sys.stdin.buffer.read()); archive.flush()\n"
        "sys.path.insert(0, '/proc/self/fd/%d' % archive.fileno())\n"
        "from validation.payloads import health\n"
        "assert 'pynvml' not in sys.modules and health.__file__.startswith('/proc/self')\n"
        "print(json.dumps(health.measure(health.Config())))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-I", "-c", script],
        input=bundle(),
        env={**os.environ, **library.environment(fake, description)},
        capture_output=True,
        check=True,
        cwd="/",
    )
    measured = json.loads(answer.stdout)
    assert [gpu["error"] for gpu in measured["gpus"]] == [None, None]


def test_the_limit_is_above_zero():
    assert load(health.Config, "{}").nvml_timeout_s == 30
    with pytest.raises(CannotRun, match="nvml_timeout_s is 0"):
        load(health.Config, '{"nvml_timeout_s": 0.0}')


# --- the kernel's log ------------------------------------------------------------------------

XID_79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off"
SXID = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO"


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """The places a log is read from, all of them empty or refused until a test fills one."""
    places = {"file": tmp_path / "kern.log", "device": tmp_path / "kmsg"}
    monkeypatch.setattr(kernel_log, "FILES", (places["file"],))
    monkeypatch.setattr(kernel_log, "DEVICE", places["device"])
    commands = {"journalctl": ("true",), "dmesg": ("false",)}
    monkeypatch.setattr(kernel_log, "COMMANDS", commands)

    def program(name, body):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        commands[name] = (str(path),)

    places["program"] = program
    return places


def test_events_of_one_kind_are_counted(sources):
    sources["program"](
        "journalctl",
        f"""cat <<'EOF'
[    0.000000] gpu1 kernel: Linux version 6.1.0-40-amd64
[   12.000000] gpu1 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.82.07
[  100.500000] gpu1 kernel: {XID_79}
[  101.500000] gpu1 kernel: {XID_79}
[  102.500000] gpu1 kernel: NVRM: Xid (PCI:0000:2B:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 00
[  103.500000] gpu1 kernel: NVRM: Xid (PCI:0000:2B:00): 145, RLW_REMAP Fatal XC0 i0 Link 00
[  104.500000] gpu1 kernel: {SXID}
EOF""",
    )
    log = kernel_log.read()
    assert (log.source, log.error, log.begins_s, log.complete) == ("journalctl", None, 0.0, "yes")
    events = [(e.kind, e.code, e.pci, e.count, e.seconds) for e in log.events]
    assert events == [
        ("xid", 79, "0000:1b:00", 2, 101.5),
        ("xid", 145, "0000:2b:00", 1, 102.5),
        ("xid", 145, "0000:2b:00", 1, 103.5),
        ("sxid", 28006, "0000:c1:00", 1, 104.5),
    ]
    assert log.events[0].text == "pid='<unknown>', name=<unknown>, GPU has fallen off"


def test_a_log_that_is_hidden_is_said_and_not_taken_for_an_empty_one(sources):
    sources["program"]("dmesg", "echo 'dmesg: read kernel buffer failed' >&2; exit 1")
    log = kernel_log.read()
    assert log.source is None
    assert "journalctl: shows nothing of the kernel" in (log.error or "")
    assert "dmesg ended with exit status 1: dmesg: read kernel buffer failed" in (log.error or "")
    assert "kmsg: No such file or directory" in (log.error or "")
    assert log.events == ()


def test_the_last_boot_of_a_file_counts(sources):
    sources["file"].write_text(
        f"Nov 20 gpu1 kernel: {BOOT}\nNov 20 gpu1 kernel: [    9.0] {XID_79}\n"
        f"Nov 21 gpu1 kernel: {BOOT}\nNov 21 gpu1 sshd: Xid (PCI:0000:1b:00): 79, a liar\n"
        "Nov 21 gpu1 kernel: [   10.5] NVRM: Xid (PCI:0000:1b:00): 63\n"
    )
    log = kernel_log.read()
    assert (log.source, log.complete) == (str(sources["file"]), "yes")
    assert [(e.code, e.seconds, e.text) for e in log.events] == [(63, 10.5, "")]


def test_a_file_that_nobody_writes_any_more_is_no_log(sources):
    sources["file"].write_text(f"Nov 20 gpu1 kernel: {BOOT}\n")
    os.utime(sources["file"], (1, 1))
    assert "was last written to before this boot" in (kernel_log.read().error or "")


def test_a_log_that_reaches_back_further_is_preferred(sources):
    sources["program"]("journalctl", f"echo '[ 9000.000000] gpu1 kernel: {SXID}'")
    sources["program"]("dmesg", f"echo '[ 7000.000000] {SXID}'")
    log = kernel_log.read()
    assert (log.source, log.begins_s, log.complete) == ("dmesg", 7000.0, "no")


def test_the_ring_buffer_is_read_where_there_is_no_program(sources):
    sources["device"].write_text(f"6,0,0,-;Linux version 6.1\n3,811,4711500000,-;{XID_79}\n")
    # A file gives all its records at one read, so only the first line counts; the device gives one.
    log = kernel_log.read()
    assert log.source == str(sources["device"])
    assert log.complete == "yes"


def test_a_program_that_hangs_is_left_behind(sources, monkeypatch):
    monkeypatch.setattr(kernel_log, "TIMEOUT_S", 0.2)
    sources["program"]("journalctl", "exec sleep 30")
    assert "journalctl did not answer within 0.2 s" in (kernel_log.read().error or "")


def test_a_missing_program_is_said(sources):
    kernel_log.COMMANDS["journalctl"] = ("/nonexistent/journalctl",)
    assert "journalctl cannot be started: No such file" in (kernel_log.read().error or "")


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", ("xid", 14, "0000:03:00")),
        (
            "NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x0 (None)",
            ("xid", 154, "0018:01:00"),
        ),
        ("NVRM: GPU at PCI:0000:1b:00: GPU-b850f46d", None),
        ("[   T12] NVRM: Xid (PCI:0000:1b:00): 79", ("xid", 79, "0000:1b:00")),
        ("usb 1-1: Xid of somebody", None),
        # What follows has a name that a process gave itself.
        ("Xid (0): 79[19153]: segfault at 0 ip 0000 sp 0000 error 4", None),
        ("traps: NVRM: Xid (0): 79[19153] trap invalid opcode ip:1", None),
        ("NVRM: Xid (0): 79, GPU has fallen off the bus", None),
        ("python[7]: NVRM: Xid (PCI:0000:1b:00): 79, written to /dev/kmsg", None),
    ],
)
def test_lines_of_the_driver_are_known(line, event):
    log = kernel_log.parse("dmesg", [BOOT, f"[   9.000000] {line}"])
    assert log is not None
    assert [(e.kind, e.code, e.pci) for e in log.events] == ([event] if event else [])


@pytest.mark.parametrize(
    "line",
    [
        "[ 9.0] Linux version [19153]: segfault at 0 ip 0000 sp 0000 error 4",
        "[ 9.0] Linux version 6.1 of a program that may write to /dev/kmsg",
        "[ 9.0] traps: Linux version [7] trap invalid opcode ip:1",
        "Nov 21 gpu1 kernel: Linux version [19153]: segfault at 0 ip 0000 sp 0000 error 4",
    ],
)
def test_a_process_cannot_begin_another_boot(line):
    log = kernel_log.parse("dmesg", [BOOT, f"[ 8.0] {XID_79}", line])
    assert log is not None
    assert [event.code for event in log.events] == [79]


def test_a_fault_in_the_log_fails_its_check_alone(node, monkeypatch):
    line = "[  7.0] NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus."
    command = ("printf", "%s\\n%s\\n", BOOT, line)
    monkeypatch.setitem(kernel_log.COMMANDS, "journalctl", command)
    results = verdicts(node())
    assert results["xid"].message == "GPU 1: XID 79 (GPU has fallen off the bus)"
    assert_fails_alone(results, "xid")


# --- the stand-in itself ---------------------------------------------------------------------


def test_without_a_compiler_the_stand_in_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(library.NoCompiler, match="gcc is needed"):
        library.build(tmp_path)


def test_severities_are_read_strictly(tmp_path):
    text = Path(xids.__file__).with_name(xids.TABLE).read_text(encoding="utf-8")
    broken = tmp_path / "xids.yml"
    broken.write_text(text.replace("{xid: 79, severity: fatal", "{xid: 48, severity: deadly"))
    with pytest.raises(DataError, match=r"severity: expected .* found 'deadly'"):
        xids.load(broken)
    broken.write_text(text.replace("{xid: 79,", "{xid: 48,"))
    with pytest.raises(DataError, match="48 is given twice"):
        xids.load(broken)


# --- links under load ------------------------------------------------------------------------


@pytest.fixture
def described(fake, tmp_path, monkeypatch):
    """Changes what NVML says from now on: it is read whenever a process begins to ask."""
    description = tmp_path / "description"
    for key, value in library.environment(fake, description).items():
        monkeypatch.setenv(key, value)

    def describe(*lines, board="h100_sxm"):
        description.write_text(library.describe(2, board, *lines))

    return describe


UUIDS: list[tuple[str | None, str | None]] = [
    (f"GPU-{index:08x}-0000-4000-8000-000000000000", None) for index in range(2)
]


def copied(links, number, seconds=0.3):
    with links.copies(number):
        time.sleep(seconds)


def test_an_idle_link_counts_for_what_it_reaches_while_it_copies(described):
    described(board="l4")  # generation 1 while idle
    links = gpu_links.Links(60)
    at_work = (
        *("gpu.*.pcie_generation = 4", "gpu.*.clock_sm_mhz = 1800", "gpu.*.clock_reasons = 6"),
        *("gpu.*.power_mw = 71600", "gpu.*.temperature_c = 66"),
    )
    described(*at_work, board="l4")
    with links.watched():
        copied(links, 0)
        copied(links, 1)
        links.loaded(0, "products", 0.0, time.monotonic())
        links.loaded(1, "memory", 0.0, time.monotonic())
    described(board="l4")
    readings = links.result(UUIDS)
    assert [gpu["generation"] for gpu in readings["gpus"]] == [4, 4]
    assert [gpu["width"] for gpu in readings["gpus"]] == [16, 16]
    assert all(gpu["samples"] > 1 for gpu in readings["gpus"])
    assert [gpu["sm_mhz"] for gpu in readings["gpus"]] == [1800, 1800]
    products, memory = readings["gpus"][0]["loads"]
    assert (memory["load"], memory["samples"], memory["sm_mhz"]) == ("memory", 0, None)
    reasons = ("application clocks setting", "software power cap")
    assert products.pop("samples") > 1
    assert products == {
        "load": "products",
        **{"sm_mhz": 1800, "power_w": 72, "temperature_c": 66},
        "held_by": [{"reason": reason, "share": 1.0} for reason in reasons],
    }
    assert readings["gpus"][1]["loads"][0]["samples"] == 0
    held_by = "application clocks setting, software power cap"
    assert [gpu["held_by"] for gpu in readings["gpus"]] == [held_by, held_by]
    assert readings["nvml"]["driver"] == "580.82.07"
    assert set(readings["gpus"][0]["before"]["values"]) == set(gpu_links.ASKED)


def test_only_samples_of_the_gpu_that_copies_count(described):
    described("gpu.1.pcie_width = 8")
    links = gpu_links.Links(60)
    with links.watched():
        copied(links, 0)
    first, second = links.result(UUIDS)["gpus"]
    assert (first["width"], first["samples"] > 0) == (16, True)
    assert (second["width"], second["samples"]) == (None, 0)


# Speaks the protocol of a worker that measures a GPU, and takes its time to copy.
WORKER = """
import json, os, sys, time
for line in sys.stdin:
    message = json.loads(line)
    what = message["do"]
    if what in ("gemm", "memory"):
        print(json.dumps({"ready": True}), flush=True)
        sys.stdin.readline()
    if what == "copies":
        time.sleep(0.3)
    number = int(os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0])
    uuid = f"GPU-{number:08x}-0000-4000-8000-000000000000"
    if what == "start":
        place = message["places"][uuid]
    print(json.dumps({"error": None, "uuid": uuid, "place": place}), flush=True)
"""


def test_the_compute_payload_looks_at_the_links_of_each_gpu_that_copies(described):
    described("gpu.1.pcie_width = 8")
    command = [sys.executable, "-I", "-c", WORKER]
    config = compute.Config(gpus=2, dtypes=("bf16",))
    measured = compute.measure(config, os.environ, command)
    links = measured["links"]
    # Where torch does not say where its GPU lies, NVML has told the process that measures it.
    places = [gpu["start"]["place"] for gpu in measured["gpus"]]
    assert places == ["00000000:1B:00.0", "00000000:2B:00.0"]
    assert [gpu["index"] for gpu in links["gpus"]] == [0, 1]
    assert [gpu["width"] for gpu in links["gpus"]] == [16, 8]
    assert links["nvml"]["error"] is None
    assert links["seconds"] > 1.2  # each of two GPUs copied twice


def test_what_a_link_shows_when_its_gpu_does_not_copy_does_not_count(described, monkeypatch):
    samples: list[dict[str, object]] = []

    class Watch:
        def __init__(self, limit_s, pause_s):
            pass

        def begun(self, limit_s):
            return True

        def end(self):
            return samples

    monkeypatch.setattr(nvml, "Watch", Watch)
    described()
    links = gpu_links.Links(60)
    with links.watched():
        with links.copies(0):
            inside = time.monotonic()
        for at, generation in ((inside, 1), (time.monotonic() + 1, 5), (0.0, 5)):
            samples.append({"gpu": 0, "at": at, "generation": generation, "width": 16})
    (gpu,) = links.result(UUIDS[:1])["gpus"]
    assert (gpu["generation"], gpu["samples"]) == (1, 1)


def test_errors_that_are_new_stand_between_before_and_after(described):
    described("gpu.1.nvlink.3.replay = 2")
    links = gpu_links.Links(60)
    described("gpu.1.nvlink.3.replay = 5")
    gpu = links.result(UUIDS)["gpus"][1]
    counted = [
        gpu[when]["values"]["nvlinks"][3]["errors"]["replay"] for when in ("before", "after")
    ]
    assert counted == [2, 5]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("identity", "index"),
    [
        ((UUIDS[1][0], None), 1),
        ((None, "0000:2b:00.0"), 1),
        ((None, None), None),
        (("GPU-x", "0000:2b:00.0"), None),
    ],
)
def test_a_gpu_is_known_by_its_uuid_or_else_by_its_place(described, identity, index):
    described()
    (gpu,) = gpu_links.Links(60).result([identity])["gpus"]
    assert gpu["index"] == index
    assert (gpu["before"] is None) is (index is None)


def test_without_a_driver_the_links_say_so(described):
    described("error.nvmlInit = DRIVER_NOT_LOADED")
    links = gpu_links.Links(60)
    with links.watched():
        copied(links, 0, 0.0)
    readings = links.result(UUIDS)
    assert "Driver Not Loaded" in readings["nvml"]["error"]
    assert [gpu["index"] for gpu in readings["gpus"]] == [None, None]


def test_a_driver_that_hangs_while_it_is_watched_costs_its_samples_alone(described):
    described()
    links = gpu_links.Links(60, ask_s=6.0)  # a busy machine takes two to load NVML
    described("gpu.*.delay_ms.nvmlDeviceGetCurrPcieLinkWidth = forever")
    began = time.monotonic()
    with links.watched():
        copied(links, 0)
    described()
    readings = links.result(UUIDS)
    assert time.monotonic() - began < 40
    assert readings["gpus"][0]["samples"] == 0
    assert readings["gpus"][0]["after"]["error"] is None


def test_the_process_that_watches_ends_by_itself(described):
    described()
    watch = nvml.Watch(0.2)
    assert watch.begun(20)
    assert watch._process.wait(20) == 0
    assert {item["width"] for item in watch.end()} == {16}
