"""Each check of a node's health, well and broken once; limits; the verbs."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.declaration import Gpus
from cluster.readers import infiniband, kernel_log, mounts, nvml
from cluster.settings_file import BadConfig
from cluster.slurm import drain_reasons
from validation.node_health import config as configs
from validation.node_health import gpus, main, node, runner, state
from validation.node_health.config import Check, HealthSettings
from validation.node_health.outcome import FAIL, PASS, SKIP, UNKNOWN, WARN, Outcome
from validation.tests import standin_health
from validation.tests.processes import runs, wait_for
from validation.tests.standin_host import port

H100 = Gpus("h100_sxm", 2)
NONE = Gpus("none", 0)


def config(*checks, **changes):
    usual = {
        "node": "n1",
        "gpus": NONE,
        "fabric": "ethernet",
        "hcas": None,
        "memory_mb": 1000,
        "shared_filesystems": (),
        "checks": checks,
    }
    return HealthSettings(**{**usual, **changes})


def check(name, **changes):
    usual = {"contexts": ("check",), "on_fail": "drain", "timeout_s": 5.0}
    return Check(name, **{**usual, **changes})


def command(name, *words, **changes):
    return check(name, command=words, **changes)


# --- the node --------------------------------------------------------------------------------

SPACE = {"paths": ["/"], "least_free_mb": 100, "least_free_inodes_percent": 1}


@pytest.fixture
def statvfs(monkeypatch):
    """What a filesystem says, to be changed."""
    values = SimpleNamespace(f_bavail=2**20, f_frsize=4096, f_flag=0, f_files=1000, f_favail=500)
    monkeypatch.setattr("os.statvfs", lambda path: values)
    return values


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({}, Outcome(PASS)),
        ({"f_flag": os.ST_RDONLY}, Outcome(FAIL, "/ is read-only")),
        ({"f_bavail": 10}, Outcome(FAIL, "/ has 0 MiB free, 100 are needed")),
        ({"f_favail": 9}, Outcome(FAIL, "/ has 9 inodes free of 1000")),
        ({"f_files": 0, "f_favail": 0}, Outcome(PASS)),  # it counts none
    ],
)
def test_filesystems(statvfs, changes, result):
    vars(statvfs).update(changes)
    assert node.filesystems(config(), SPACE) == result


def test_a_filesystem_is_told_of_once(statvfs, tmp_path):
    vars(statvfs).update(f_bavail=0)
    (tmp_path / "same").mkdir()
    paths = [str(tmp_path), str(tmp_path / "same"), str(tmp_path / "away")]
    result = node.filesystems(config(), {**SPACE, "paths": paths})
    assert result.text.count("free") == 1


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """/proc with a node's memory and no job."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1/comm").write_text("systemd\n")
    (tmp_path / "meminfo").write_text("MemTotal: 4096000 kB\nMemAvailable: 2048000 kB\n")
    monkeypatch.setattr(node, "PROC", tmp_path)
    monkeypatch.setattr(node, "MEMINFO", tmp_path / "meminfo")
    return tmp_path


ENOUGH = {"least_available_percent": 90}


@pytest.mark.parametrize(
    ("declared_mb", "process", "result"),
    [
        (2000, "systemd", Outcome(PASS)),
        (
            3000,
            "systemd",
            Outcome(FAIL, "2000 MiB are available without any job, Slurm promises 3000"),
        ),
        (3000, "slurmstepd", Outcome(PASS, "a job runs: its memory is not counted")),
    ],
)
def test_memory(proc, declared_mb, process, result):
    (proc / "1/comm").write_text(f"{process}\n")
    assert node.memory(config(memory_mb=declared_mb), ENOUGH) == result
    assert node.memory(config(memory_mb=0), ENOUGH).verdict == SKIP  # nobody declared it


def test_memory_of_which_the_kernel_says_nothing(proc):
    (proc / "meminfo").write_text("")
    with pytest.raises(RuntimeError, match="has no MemAvailable"):
        node.memory(config(), ENOUGH)


@pytest.mark.parametrize(("count", "verdict"), [(0, PASS), (3, FAIL)])
def test_memory_errors(count, verdict, tmp_path, monkeypatch):
    monkeypatch.setattr(node, "EDAC", tmp_path)
    assert node.memory_errors(config(), {}).verdict == PASS
    (tmp_path / "mc0").mkdir()
    (tmp_path / "mc0/ue_count").write_text(f"{count}\n")
    assert node.memory_errors(config(), {}).verdict == verdict


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts programs into PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(name, text):
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return file

    return make


def test_munge(program):
    program("munge", "echo MUNGE:abc:")
    program("unmunge", 'read it; echo "STATUS:          Success (0)"')
    assert node.munge(config(), {}) == Outcome(PASS)


@pytest.mark.parametrize(
    ("script", "read", "text"),
    [
        ("echo no daemon >&2; exit 6", "", "munge ended with exit status 6: no daemon"),
        ("echo M", "exit 15", "unmunge ended with exit status 15"),
        ("echo M", "echo 'STATUS: Expired credential (15)'", "munge does not take its own"),
        ("echo M", "echo nothing", "munge does not take its own"),
    ],
)
def test_munge_that_does_not_work(program, script, read, text):
    program("munge", script)
    program("unmunge", f"cat > /dev/null; {read}")
    result = node.munge(config(), {})
    assert result.verdict == FAIL
    assert text in result.text


def test_munge_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "munge cannot be started" in node.munge(config(), {}).text


@pytest.mark.parametrize(("status", "verdict"), [(0x2001, PASS), (0x40, FAIL)])
def test_the_clock(status, verdict, monkeypatch, tmp_path):
    monkeypatch.setattr(node, "CONTAINER", tmp_path / "not there")
    monkeypatch.setattr(node, "clock_status", lambda: status)
    assert node.clock(config(), {}).verdict == verdict


def test_the_kernel_says_something_of_the_clock():
    """0x40 and 0x2001 are of a clock that nobody keeps, and of one that is kept."""
    assert 0 <= node.clock_status() < 2**16


def test_a_container_has_no_clock(monkeypatch, tmp_path):
    monkeypatch.setattr(node, "CONTAINER", tmp_path)
    assert node.clock(config(), {}).verdict == SKIP


@pytest.mark.parametrize(("path", "verdict"), [("/home", PASS), ("/scratch", FAIL)])
def test_what_is_mounted(path, verdict, tmp_path, monkeypatch):
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /home rw - nfs4 server:/home rw\n"
    )
    monkeypatch.setattr(mounts, "MOUNTINFO", table)
    assert node.mounted(config(shared_filesystems=(path,)), {}).verdict == verdict
    assert node.mounted(config(), {}).verdict == SKIP


def test_a_filesystem_that_answers(tmp_path):
    assert node.mounts_answer(config(shared_filesystems=(str(tmp_path),)), {}).verdict == PASS
    assert node.mounts_answer(config(), {}).verdict == SKIP
    with pytest.raises(OSError, match="No such file"):
        node.mounts_answer(config(shared_filesystems=(str(tmp_path / "x"),)), {})


@pytest.fixture
def ports(monkeypatch):
    """The ports that a node has."""
    return lambda *listed: monkeypatch.setattr(infiniband, "read", lambda: list(listed))


@pytest.mark.parametrize(
    ("entries", "verdict"),
    [
        ([port(0)], PASS),
        ([port(0, state="1: DOWN", phys_state="3: Disabled")], FAIL),
        ([port(0, rate="200 Gb/sec (4X HDR)")], FAIL),
        ([], FAIL),
        ([port(0, rate="800 Gb/sec (4X XDR)")], WARN),
    ],
)
def test_infiniband(ports, entries, verdict):
    ports(*entries)
    assert node.infiniband(config(fabric="ib_ndr400"), {}).verdict == verdict
    assert node.infiniband(config(fabric="ethernet"), {}).verdict == SKIP


def test_infiniband_ports_that_are_not_meant(ports):
    ports(port(0), port(0, device="x", state="1: DOWN"))
    assert node.infiniband(config(fabric="ib_ndr400"), {}).verdict == FAIL
    assert node.infiniband(config(fabric="ib_ndr400", hcas="mlx5"), {}).verdict == PASS


LOG = """\
[    0.000000] Linux version 6.8.0
[   12.000000] watchdog: Watchdog detected hard LOCKUP on cpu 3
[   13.000000] watchdog: Watchdog detected hard LOCKUP on cpu 4
"""
PATTERNS = {"patterns": {"locked-up CPU": "hard LOCKUP", "machine check": "Uncorrected"}}


@pytest.fixture
def journal(program, monkeypatch):
    monkeypatch.setattr(kernel_log, "FILES", ())
    monkeypatch.setattr(kernel_log, "DEVICE", Path("/not/there"))
    program("dmesg", "exit 1")
    return lambda text: program("journalctl", f"cat <<'END'\n{text}END")


def test_the_kernels_log(journal):
    journal(LOG.splitlines()[0] + "\n")
    assert node.kernel_log(config(), PATTERNS) == Outcome(PASS)
    journal(LOG)
    result = node.kernel_log(config(), PATTERNS)
    assert result.verdict == FAIL
    assert result.text.startswith("locked-up CPU, 2 times: [   13.000000] watchdog")


def test_a_kernels_log_that_may_not_be_read(journal):
    journal("")
    assert node.kernel_log(config(), PATTERNS).verdict == UNKNOWN


def test_a_check_is_there_for_every_builtin_and_the_other_way_round():
    assert set(node.BUILTINS) | set(gpus.BUILTINS) == {
        "clock", "filesystems", "infiniband", "kernel_log", "memory", "memory_errors", "mounted",
        "mounts_answer", "munge", "gpu_clocks", "gpu_driver", "gpu_ecc", "gpu_memory", "gpu_mig",
        "gpu_nvlink", "gpu_pcie", "gpu_persistence", "gpu_processes", "gpu_xid", "rdma_path",
    }  # fmt: skip


# --- GPUs ------------------------------------------------------------------------------------

ARGUMENTS = {"gpu_memory": {"most_used_mb": 2048}}


def judged(builtin, change=None, job_gpus=None, declared=H100, events=(), nvml=None):
    """What a check says of two boards, of which the second is changed."""
    measured = standin_health.measured(2)
    measured["gpus"][1]["values"].update(change or {})
    measured["kernel_log"]["events"] = list(events)
    if nvml:
        measured |= {"nvml": {"error": nvml, "seconds": 0.1}, "gpus": []}
    checks = [check("it", builtin=builtin, arguments=ARGUMENTS.get(builtin, {}))]
    about = {"it": None if job_gpus is None else frozenset(job_gpus)}
    return gpus.judged(config(gpus=declared), checks, measured, about)["it"]


ROWS = {"correctable": 0, "uncorrectable": 1, "pending": "no", "failure": "no"}
LINKS = [{"link": link, **standin_health.LINK} for link in range(18)]
DOWN = [{**LINKS[0], "state": "down"}, *LINKS[1:]]
SLOWED = {"always": 64, "sometimes": 64, "reasons": ""}
PYTHON = {"pid": 4711, "name": "python3", "memory_mb": 9000}
XID_79 = {"kind": "xid", "code": 79, "pci": "0000:2b:00", "count": 1, "seconds": 9.0,
          "text": "GPU has fallen off the bus."}  # fmt: skip


@pytest.mark.parametrize("builtin", gpus.BUILTINS)
def test_gpus_that_are_well(builtin):
    assert judged(builtin) == Outcome(PASS)


@pytest.mark.parametrize(
    ("builtin", "change", "text"),
    [
        ("gpu_driver", {"recovery_action": "GPU reset"}, "GPU 1: the driver asks for a GPU reset"),
        ("gpu_ecc", {"ecc_volatile_uncorrected": 2}, "GPU 1: 2 uncorrectable ECC errors"),
        ("gpu_ecc", {"remapped_rows": {**ROWS, "pending": "yes"}}, "GPU 1: a memory row waits"),
        ("gpu_ecc", {"remapped_rows": {**ROWS, "failure": "yes"}}, "GPU 1: remapping a memory"),
        ("gpu_pcie", {"pcie_width": 8}, "GPU 1: 8 PCIe lanes of 16"),
        ("gpu_nvlink", {"nvlinks": DOWN}, "GPU 1: NVLink 0 is down, of 18"),
        ("gpu_clocks", {"clock_reasons": SLOWED}, "GPU 1: clocks are reduced: hardware thermal"),
        ("gpu_persistence", {"persistence": "off"}, "GPU 1: persistence mode is off"),
        ("gpu_mig", {"mig": "on"}, "GPU 1: MIG is on"),
        ("gpu_processes", {"processes": [PYTHON]}, "GPU 1: used by process 4711 (python3)"),
        ("gpu_memory", {"memory_used_mb": 9000}, "GPU 1: 9000 MiB of memory are used"),
    ],
)
def test_gpus_that_are_not(builtin, change, text):
    result = judged(builtin, change)
    assert result.verdict == FAIL
    assert result.text.startswith(text)


def test_fewer_gpus_than_declared():
    result = judged("gpu_driver", declared=Gpus("h100_sxm", 4))
    assert result.text.startswith("NVML counts 2 GPUs, 4 declared")
    assert result.verdict == FAIL


@pytest.mark.parametrize(
    ("event", "verdict"),
    [(XID_79, FAIL), ({**XID_79, "code": 13}, PASS), ({**XID_79, "code": 9999}, WARN)],
)
def test_an_xid(event, verdict):
    assert judged("gpu_xid", events=[event]).verdict == verdict


@pytest.mark.parametrize("builtin", ["gpu_processes", "gpu_memory"])
def test_what_is_left_on_another_jobs_gpu_is_that_jobs(builtin):
    change = {"processes": [PYTHON], "memory_used_mb": 9000}
    assert judged(builtin, change, job_gpus=[0]).verdict == PASS
    assert judged(builtin, change, job_gpus=[1]).verdict == FAIL
    assert judged(builtin, change, job_gpus=[]).verdict == PASS


def test_a_failing_board_is_named_whatever_slot_it_is_moved_to():
    """As far as NVML tells it: one that does not say who it is fails all the same."""
    fault = {"ecc_volatile_uncorrected": 2}
    board = "GPU-0a1b2c3d-0000-0000-0000-000000000000"
    assert judged("gpu_ecc", {**fault, "uuid": board}).text.endswith(f"loaded ({board})")
    assert judged("gpu_ecc", {**fault, "uuid": None}).text.endswith("loaded")
    warned = judged("gpu_ecc", {"ecc_aggregate_uncorrected": 1, "uuid": board})
    assert board not in warned.text


def test_what_is_only_warned_of_does_not_fail():
    assert judged("gpu_ecc", {"ecc_aggregate_uncorrected": 1}).verdict == WARN


@pytest.mark.parametrize("builtin", gpus.BUILTINS)
def test_declared_gpus_without_nvml_are_a_failure(builtin):
    result = judged(builtin, nvml="NVML: Driver Not Loaded (code 9)")
    assert result.verdict == (PASS if builtin == "gpu_xid" else FAIL)


@pytest.mark.parametrize("builtin", gpus.BUILTINS)
@pytest.mark.parametrize("declared", [NONE, Gpus("virtual", 2), Gpus("h100_sxm", 0)], ids=str)
def test_without_a_gpu_that_is_declared_nothing_of_this_applies(builtin, declared):
    gpu_check = check("it", builtin=builtin)
    result = runner.run(config(gpus=declared), [gpu_check], {}, {})["it"]
    assert result.verdict == SKIP


def test_gpus_that_jobs_share_have_no_leftovers():
    shared = config(gpus=Gpus("h100_sxm", 2, mig=(("1g.10gb", 7),)))
    assert gpus.applies(shared, check("it", builtin="gpu_processes")) is not None
    assert gpus.applies(shared, check("it", builtin="gpu_ecc")) is None


def test_all_checks_of_gpus_share_one_pass(monkeypatch):
    passes = []

    def ask(limit_s, names):
        passes.append(names)
        return nvml.System("not there"), []

    monkeypatch.setattr(nvml, "ask", ask)
    measured = gpus.read([check("a", builtin="gpu_ecc"), check("b", builtin="gpu_mig")], 9.0)
    assert measured["kernel_log"] is None
    assert [set(names) for names in passes] == [
        {*gpus.BUILTINS["gpu_ecc"].questions, *gpus.BUILTINS["gpu_mig"].questions, "uuid"}
    ]


def test_every_question_is_one_of_nvmls():
    for builtin in gpus.BUILTINS.values():
        assert set(builtin.questions) <= set(nvml.QUESTIONS)


# --- limits ----------------------------------------------------------------------------------


def test_a_check_that_hangs_has_failed_and_is_killed_with_its_children(tmp_path):
    pid = tmp_path / "pid"
    hanging = command("hang", "sh", "-c", f"sleep 1000 & echo $! > {pid}; wait", timeout_s=0.5)
    started = time.monotonic()
    results = runner.run(config(), [hanging, command("well", "true")], {}, {})
    assert time.monotonic() - started < 10
    assert results == {"hang": Outcome(FAIL, "did not answer within 0.5 s"), "well": Outcome(PASS)}
    wait_for(lambda: not runs(int(pid.read_text())), seconds=5)


def test_checks_run_side_by_side():
    checks = [command(f"c{number}", "sleep", "1.5") for number in range(8)]
    started = time.monotonic()
    runner.run(config(), checks, {}, {})
    assert time.monotonic() - started < 8  # 12 one after the other


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("sh", "-c", "echo one; echo; echo two >&2; exit 3"), "one / two (exit status 3)"),
        (("sh", "-c", "exit 3"), "sh says nothing (exit status 3)"),
        (("/not/there",), "/not/there cannot be started: No such file or directory"),
    ],
)
def test_a_command_that_fails(words, text):
    assert runner.run(config(), [command("c", *words)], {}, {})["c"] == Outcome(FAIL, text)


def test_a_check_that_breaks_has_failed(monkeypatch):
    monkeypatch.setattr(node, "MEMINFO", Path("/not/there"))
    monkeypatch.setattr(node, "PROC", Path("/not/there"))
    memory_check = check("memory", builtin="memory", arguments=ENOUGH)
    result = runner.run(config(), [memory_check], {}, {})["memory"]
    assert result == Outcome(FAIL, "No such file or directory")


# --- prolog, epilog, and what is asked again -------------------------------------------------


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "FOLDER", tmp_path / "disk")
    monkeypatch.setattr(state, "SPARE", tmp_path / "run")
    monkeypatch.setattr(main, "LAST", tmp_path / "run/last.json")
    monkeypatch.setattr("syslog.syslog", lambda *arguments: None)
    return state.Files()


BOTH = ("prolog", "epilog")


def test_a_prolog_that_passes_writes_nothing(folders):
    well = config(command("c", "true", contexts=BOTH))
    assert main.job(well, "prolog", {}) == 0
    assert not folders.folder.exists()


def test_a_prolog_that_fails_says_why_and_is_remembered(folders, capsys):
    bad = config(
        command("c", "false", contexts=BOTH, reason="the board smokes"),
        command("d", "false", contexts=("epilog",)),
        command("e", "false", contexts=BOTH, on_fail="log"),
    )
    assert main.job(bad, "prolog", {"SLURM_JOB_GPUS": "0,2-3"}) == 1
    assert capsys.readouterr().err == "[plumbline:c] the board smokes\n"
    job = folders.job()
    assert job is not None
    assert (job.context, job.gpus) == ("prolog", (0, 2, 3))
    assert job.failures == {"c": "[plumbline:c] the board smokes"}


@pytest.mark.parametrize(
    ("environment", "gpus_of_job"),
    [({}, None), ({"SLURM_JOB_GPUS": "1"}, (1,)), ({"SLURM_JOB_GPUS": "0-1,5"}, (0, 1, 5))],
)
def test_the_gpus_of_a_job(environment, gpus_of_job):
    assert main.job_gpus(environment) == gpus_of_job


def test_what_failed_in_a_prolog_is_asked_until_it_passes():
    """About that job's GPUs, where only prolog and epilog ask for it."""
    before = check("before", builtin="gpu_memory", contexts=("prolog",))
    usual, never = command("usual", "true"), command("never", "true", contexts=("epilog",))
    all_ = config(before, usual, never)
    failed = state.JobFailure("prolog", 0.0, {"before": "", "usual": ""}, (1,))
    assert main.due(all_, None, None) == ([usual], {})
    checks, about = main.due(all_, None, failed)
    assert checks == [before, usual]
    assert about == {"before": frozenset({1}), "usual": None}
    drain = state.Drain({"before": (1,)}, ("r",), True, 0.0)
    assert main.due(all_, drain, None)[1] == {"before": frozenset({1})}


def test_a_check_that_a_site_removed_while_it_failed_holds_nobody():
    drain = state.Drain({"gone": None}, ("r",), True, 0.0)
    assert main.due(config(command("c", "true")), drain, None)[0] == [command("c", "true")]


# --- the framework ---------------------------------------------------------------------------


def test_a_reason_is_one_line_for_machines_and_people():
    assert drain_reasons.reason("c", 'a\n"b"\x1b') == "[plumbline:c] a 'b'"
    assert len(drain_reasons.reason("c", "x" * 999)) == 200


CHECK = {"command": ["/bin/true"], "contexts": ["check"], "on_fail": "log", "timeout_s": 3}


def document(**changes):
    usual = {
        "version": 1,
        "node": "n1",
        "gpus": {"model": "h100_sxm", "count": 8, "nvml": False, "mig": {"1g.10gb": 7}},
        "fabric": "ib_ndr400",
        "hcas": "",
        "memory_mb": 5,
        "shared_filesystems": ["/home"],
        "checks": {"c": CHECK},
    }
    return {**usual, **changes}


def test_the_declaration_is_read(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(document()))
    declaration = configs.read(tmp_path / "c.json")
    assert declaration.gpus == Gpus("h100_sxm", 8, mig=(("1g.10gb", 7),))
    assert declaration.checks == (Check("c", ("check",), "log", 3.0, command=("/bin/true",)),)


@pytest.mark.parametrize(
    "broken",
    [
        document(version=2),
        document(memory_mb="much"),
        document(node=None),
        document(checks={"c": {}}),
        document(checks={"c": {**CHECK, "builtin": "munge"}}),
        document(checks={"c": {**CHECK, "on_fail": "dance"}}),
        document(checks={"c": {**CHECK, "contexts": ["never"]}}),
        document(checks={"c": {**CHECK, "timeout_s": 0}}),
        {},
        [],
    ],
    ids=str,
)
def test_a_declaration_that_is_none_is_refused(broken, tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(broken))
    with pytest.raises(BadConfig):
        configs.read(tmp_path / "c.json")


@pytest.fixture(autouse=True)
def _as_urgent_as_before(monkeypatch):
    """The tests' own process would stay urgent, and come before all others of the machine."""
    monkeypatch.setattr(os, "nice", lambda _: None)


@pytest.fixture
def words(folders, program, monkeypatch, tmp_path):
    """Commands of Slurm that count: what was said to slurmctld."""
    log = tmp_path / "log"
    for name in ("scontrol", "sinfo", "squeue", "srun", "sacct", "sacctmgr"):
        program(name, f'echo "{name} $*" >> {log}; echo "NodeName=n1 State=IDLE Weight=1"')
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    return lambda: log.read_text().splitlines() if log.exists() else []


def test_a_broken_declaration_keeps_jobs_away_and_drains(words, folders, monkeypatch, tmp_path):
    monkeypatch.setattr(main, "read", lambda: configs.read(tmp_path / "none.json"))
    assert main.main(["prolog"]) == 1
    assert words() == []
    assert main.main(["check"]) == 1
    assert words() == [
        "scontrol -o show node n1",
        "scontrol update NodeName=n1 State=DRAIN Reason=[plumbline:framework] "
        f"{tmp_path}/none.json cannot be read: No such file or directory",
    ]


def test_a_healthy_node_says_nothing_to_slurm(words, folders, monkeypatch):
    well = config(command("c", "true", contexts=("prolog", "epilog", "check")))
    monkeypatch.setattr(main, "read", lambda: well)
    monkeypatch.setattr(main, "_bound", lambda *arguments: None)
    for verb in ("prolog", "check", "epilog", "check"):
        assert main.main([verb]) == 0
    assert words() == []


def test_a_failure_is_told_once(words, folders, monkeypatch):
    monkeypatch.setattr(main, "read", lambda: config(command("c", "false", reason="bad")))
    for _ in range(3):
        assert main.main(["check"]) == 0
    assert len(words()) == 2
    assert words()[1].endswith("Reason=[plumbline:c] bad")


def test_slurm_that_does_not_take_it_is_told_again(words, folders, program, monkeypatch):
    monkeypatch.setattr(main, "read", lambda: config(command("c", "false", reason="bad")))
    good = program("scontrol", "exit 1")
    assert main.main(["check"]) == 1
    good.unlink()
    program("scontrol", "echo NodeName=n1 State=IDLE")
    assert main.main(["check"]) == 0
    assert folders.drain().told


def test_without_a_place_to_write_a_bad_node_is_drained_all_the_same(
    words, folders, monkeypatch, tmp_path
):
    (tmp_path / "run").write_text("no folder")
    (tmp_path / "disk").write_text("no folder")
    monkeypatch.setattr(main, "read", lambda: config(command("c", "true")))
    assert main.main(["check"]) == 1
    assert "State=DRAIN Reason=[plumbline:framework]" in words()[-1]


def test_the_verbs_for_people(folders, monkeypatch, capsys):
    bad = config(command("c", "false", reason="bad"), command("d", "true"))
    monkeypatch.setattr(main, "read", lambda: bad)
    assert main.main(["list"]) == 0
    assert main.main(["show"]) == 0
    assert "told nothing" in capsys.readouterr().out
    assert main.main(["check", "--dry-run"]) == 1
    assert main.main(["run", "d"]) == 0
    assert main.main(["run", "nobody"]) == 2
    capsys.readouterr()
    assert main.main(["check", "--dry-run", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["checks"][0]["verdict"] == "fail"
    folders.keep_drain(state.Drain({"c": None}, ("[plumbline:c] bad",), True, 0.0))
    assert main.main(["show"]) == 0
    assert "drained by the health checks" in capsys.readouterr().out
