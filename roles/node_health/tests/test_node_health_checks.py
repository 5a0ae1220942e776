"""What a site may say of the checks, and that the docs say the same as the data."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from cluster.readers import kernel_log
from roles.node_health.plugin_utils import archive
from roles.node_health.plugin_utils.checks import BUILTINS, draining, merged, problems, rows
from validation.node_health import config

ROLE = Path(__file__).resolve().parents[1]
DOCS = ROLE.parents[1] / "docs/operate/health.md"
VARS = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
SHIPPED, USUAL = VARS["__node_health_builtin"], VARS["__node_health_defaults"]


def site(**checks):
    return merged(SHIPPED, checks, USUAL)


def test_what_is_shipped_is_well_and_asks_every_builtin():
    assert problems(SHIPPED, {}, USUAL) == []
    assert {check.get("builtin") for check in SHIPPED.values()} - {None} == BUILTINS


def test_what_is_shipped_can_be_read_by_the_program():
    document = {
        "version": 1,
        "node": "n1",
        "gpus": {"model": "none", "count": 0, "nvml": False, "mig": {}},
        "fabric": "ethernet",
        "hcas": "",
        "memory_mb": 0,
        "shared_filesystems": [],
        "checks": site(dcgm={"enabled": True}),
    }
    assert {check.name for check in config.parse(document).checks} == set(SHIPPED)


def test_a_prolog_has_ten_seconds_and_the_program_of_slurmd_a_minute():
    for check in site(dcgm={"enabled": True}).values():
        prolog = {"prolog", "epilog"} & set(check["contexts"])
        assert check["timeout_s"] <= (9 if prolog else 30)


def test_nothing_that_all_nodes_share_drains_them_all():
    shared = {name: SHIPPED[name]["on_fail"] for name in ("clock", "mounts_answer")}
    assert shared == {"clock": "log", "mounts_answer": "log"}


PATTERNS = SHIPPED["kernel_log"]["arguments"]["patterns"]
OOM = "Out of memory: Killed process 812 (slurmd) total-vm:1kB, anon-rss:1kB, UID:{} pgtables:4kB"


def found(message):
    """The names of the patterns that find it, where it is a line of the log."""
    expressions = [re.compile(pattern) for pattern in PATTERNS.values()]
    log = kernel_log.parse("dmesg", [f"[    9.100000] {message}"], expressions)
    assert log
    return [
        name
        for name, pattern in PATTERNS.items()
        if any(re.search(pattern, kernel_log.message(line)) for line in log.lines)
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("locked-up CPU", "watchdog: Watchdog detected hard LOCKUP on cpu 3"),
        ("locked-up CPU", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3"),
        ("locked-up CPU", "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3"),
        ("machine check", "mce: [Hardware Error]: Machine check: Processor context corrupt"),
        ("kernel fault", "BUG: unable to handle page fault for address: 0000000000000010"),
        ("kernel fault", "Oops: 0002 [#1] SMP"),
        ("kernel fault", "Oops: general protection fault, probably for non-canonical address 0x1"),
        ("kernel fault", "Internal error: Oops: 0000000096000004 [#1] SMP"),
        ("kernel fault", "general protection fault: 0000 [#1] SMP"),
        ("killed daemon", "Out of memory: Killed process 812 (slurmd) total-vm:1kB"),
        ("killed daemon", OOM.format(0)),
        ("killed daemon", OOM.format(998)),
        ("read-only filesystem", "EXT4-fs (sda1): Remounting filesystem read-only"),
    ],
)
def test_messages_of_the_kernel_are_found(name, message):
    assert found(message) == [name]


@pytest.mark.parametrize(
    "message",
    [
        "Memory cgroup out of memory: Killed process 99 (python3) total-vm:1kB",
        # All of these a user can bring about, by the name of a process.
        "Oops: x[19153]: segfault at 0 ip 0000 sp 0000 error 4 in a.out[5581+1000]",
        "Oops: x[19153] general protection fault ip:1 sp:2 error:0",
        "traps: Oops: x[19153] trap invalid opcode ip:1 sp:2 error:0 in a.out",
        "a kernel: Oops:[12]: segfault at 0 ip 0000 sp 0000 error 4",
        "traps: general protection fault: [19153] trap divide error ip:1 sp:2 error:0",
        "Memory cgroup out of memory: Killed process 99 (Oops: x) total-vm:1kB",
        OOM.format(1000),
    ],
)
def test_what_a_users_process_makes_the_kernel_write_is_not(message):
    assert found(message) == []


def test_a_site_changes_one_word_and_the_rest_stays():
    checks = site(gpu_memory={"on_fail": "log"}, filesystems={"arguments": {"least_free_mb": 1}})
    assert checks["gpu_memory"] == USUAL | SHIPPED["gpu_memory"] | {"on_fail": "log"}
    assert checks["filesystems"]["arguments"]["least_free_mb"] == 1
    assert checks["filesystems"]["arguments"]["least_free_inodes_percent"] == 1


def test_a_site_switches_off_and_on_and_adds():
    checks = site(munge={"enabled": False}, dcgm={"enabled": True}, own={"command": ["/bin/x"]})
    assert "munge" not in checks
    assert checks["dcgm"]["command"][0] == "/usr/bin/dcgmi"
    assert checks["own"] == {**USUAL, "command": ["/bin/x"]}
    assert "dcgm" not in site()


def test_a_command_takes_the_place_of_a_builtin():
    assert "builtin" not in site(munge={"command": ["/bin/x"]})["munge"]


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("Own", {"command": ["/x"]}, "is no name of a check"),
        ("own", "off", "write a mapping"),
        ("own", {"comand": ["/x"]}, "has comand, which is no word of a check"),
        ("own", {"command": "/x"}, "command is '/x'; set it to a list"),
        ("own", {"command": ["x"]}, "write the program's full path"),
        ("own", {}, "needs either a command or a builtin"),
        ("own", {"command": ["/x"], "builtin": "munge"}, "needs either a command or a builtin"),
        ("own", {"builtin": "mungo"}, "builtin is mungo; use one of clock,"),
        ("munge", {"contexts": ["login"]}, "contexts has login; use prolog, epilog, check"),
        ("munge", {"contexts": []}, "set enabled: false"),
        ("munge", {"on_fail": "panic"}, "on_fail is panic; use drain or log"),
        ("munge", {"timeout_s": 10}, "timeout_s is 10; set it to a number of seconds up to 9"),
        ("clock", {"timeout_s": 31}, "up to 30"),
        ("clock", {"timeout_s": "5"}, "timeout_s is 5; set it to a number"),
        ("munge", {"enabled": "no"}, "enabled is 'no'; set it to true or false"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(name, check, words):
    (sentence,) = problems(SHIPPED, {name: check}, USUAL)
    assert sentence.startswith(f"node_health_checks.{name}")
    assert words in sentence


@pytest.mark.parametrize(
    ("verdict", "on_fail", "what", "shown", "text"),
    [
        ("pass", "drain", "a", "PASS", "well"),
        ("fail", "drain", "a", "FAIL", "why"),
        ("skip", "drain", "a", "SKIP", "why"),
        ("unknown", "drain", "a", "FAIL", "why"),
        ("fail", "log", "a (only logged)", "FAIL", "why"),
        ("warn", "drain", "a", "PASS", "why"),
    ],
)
def test_a_row_of_the_table(verdict, on_fail, what, shown, text):
    document = {"checks": [{"check": "a", "verdict": verdict, "on_fail": on_fail, "text": "why"}]}
    (row,) = rows(document)
    assert (row["what"], row["verdict"], row["found"]) == (what, shown, text)
    assert draining(document) == ([row] if on_fail == "drain" else [])


# --- the file that the nodes get -------------------------------------------------------------


def test_the_file_is_the_same_each_time_runs_by_itself_and_knows_every_rule(tmp_path):
    """Isolated, as on a node: nothing but the file and the standard library."""
    file = tmp_path / "node-health.pyz"
    file.write_bytes(archive.content())
    assert file.read_bytes() == archive.content()
    with zipfile.ZipFile(file) as packed:
        assert not re.findall(r"/tests/|^validation/slurm/", "\n".join(packed.namelist()), re.M)
    program = (
        f"import sys; sys.path[:0] = [{str(file)!r}];"
        "from validation.node_health import gpus, main, node, runner, slurm, state;"
        "import pynvml; print(len(gpus.xids.load().by_code), len(gpus.BUILTINS))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split()[-1:] == ["10"], done.stderr
    assert int(done.stdout.split()[0]) > 50


# --- the page --------------------------------------------------------------------------------


def table():
    """The rows of the page's table of checks: name, contexts, on_fail, limit."""
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| check |"))
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        yield cells[0].strip("`"), cells[2], cells[3], cells[4]


def test_the_page_has_the_checks_that_are_shipped():
    whole = merged(SHIPPED, {"dcgm": {"enabled": True}}, USUAL)
    expected = []
    for name, check in whole.items():
        on_fail = "off" if SHIPPED[name].get("enabled") is False else check["on_fail"]
        expected.append((name, ", ".join(check["contexts"]), on_fail, f"{check['timeout_s']} s"))
    assert list(table()) == expected
