"""The message of a login, of answers as commands give them, and of commands that give none."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roles.user_examples.files.login_message import asking, disks, main, slurm
from roles.user_examples.plugin_utils import archive

SINFO = """\
gpu* idle gpu:h100:8(S:0-1) gpu:h100:0(IDX:N/A) 2-00:00:00
gpu* mixed gpu:h100:8(S:0-1) gpu:h100:6(IDX:0-5) 2-00:00:00
gpu* drained gpu:h100:8(S:0-1) gpu:h100:0(IDX:N/A) 2-00:00:00
cpu allocated (null) gpu:0 infinite
"""
NOW = 1795327200.0
DAY = 86400


def reservation(
    name="outage", start=2 * DAY, end=2 * DAY + 4 * 3600, flags="MAINT,SPEC_NODES", **of
):
    keys = {"Nodes": "gpu[1-2]", "NodeCnt": "2", "PartitionName": "(null)"} | of
    words = " ".join(f"{key}={value}" for key, value in keys.items())
    times = f"StartTime={NOW + start:.0f} EndTime={NOW + end:.0f} Duration=04:00:00"
    return (
        f"ReservationName={name} {times} {words} Flags={flags} TRES=cpu=8 Users=root State=INACTIVE"
    )


@pytest.fixture(autouse=True)
def zone(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def told(*lines, days=14):
    return list(slurm.sentences(slurm.maintenance("\n".join(lines), NOW, days), NOW))


# --- Slurm ---------------------------------------------------------------------------------------


def test_partitions_have_what_is_free():
    assert list(slurm.partitions(SINFO)) == [
        "Partition        Idle nodes       Free GPUs        Time limit",
        "gpu*             1 of 3           10 of 24         2-00:00:00",
        "cpu              0 of 1           -                infinite",
    ]
    assert list(slurm.partitions("")) == []
    assert list(slurm.partitions("slurm_load_partitions: Unable to contact slurm controller")) == []


def test_types_of_gpus_and_other_resources():
    assert slurm._gpus("gpu:h100:4,gpu:a100:2(S:0),nvme:1,gpu:3") == 9
    assert slurm._gpus("(null)") == 0


def test_jobs_are_counted():
    assert slurm.jobs("R\nPD\nPD\n") == "Your jobs: 1 running, 2 waiting"
    assert slurm.jobs("") == "Your jobs: 0 running, 0 waiting"


def test_maintenance_that_comes():
    assert told(reservation()) == [
        "Maintenance of gpu[1-2] from Tue 2026-11-24 06:00 to Tue 2026-11-24 10:00: a job whose "
        "time limit reaches into it waits until it is over; --time=2-00:00 still starts before."
    ]
    (sentence,) = told(reservation(start=5400, flags="MAINT,ALL_NODES"))
    assert "Maintenance of all nodes from" in sentence
    assert "--time=0-01:30 " in sentence


def test_maintenance_that_is_there():
    (sentence,) = told(reservation(start=-3600, end=3600))
    until = "Maintenance of gpu[1-2] until Sun 2026-11-22 07:00: no job starts there before."
    assert sentence == until


@pytest.mark.parametrize(
    "line",
    [
        reservation(flags="SPEC_NODES"),
        reservation(flags="MAINTENANCE_OF_OTHERS"),
        reservation(start=15 * DAY, end=16 * DAY),
        reservation(start=-2 * DAY, end=-DAY),
        reservation(flags="SPEC_NODES") + " Comment=not Flags=MAINT",
        "No reservations in the system",
        "ReservationName=x Flags=MAINT",
        "",
    ],
)
def test_what_is_no_maintenance_to_tell(line):
    assert told(line) == []


def test_the_first_comes_first_and_days_are_the_sites():
    late, early = reservation(start=DAY, Nodes="b"), reservation(start=3600, Nodes="a")
    assert [sentence.split()[2] for sentence in told(late, early)] == ["a", "b"]
    assert len(told(late, early, days=0.5)) == 1


def test_names_are_text():
    (sentence,) = told(reservation(Nodes="\x1b[2Jgpu1"))
    assert "\x1b" not in sentence
    lines = list(slurm.partitions(SINFO.replace("cpu", "\x1b]0;x\x07")))
    assert not any("\x1b" in line or "\x07" in line for line in lines)


# --- disks ---------------------------------------------------------------------------------------

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
nfs1:/home /home nfs4 rw 0 0
mgs@tcp:/scratch /scratch lustre rw 0 0
nfs1:/a\\040b /home/a\\040b nfs4 rw 0 0
"""
QUOTA = """\
Disk quotas for user ada (uid 2001):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
          /home 419430400* 314572800 524288000 1700000000   12   0   0   0
"""


def test_the_mount_is_read_off_the_table():
    assert disks.mount_of("/home/ada", MOUNTS) == disks.Mount("/home", "nfs4")
    assert disks.mount_of("/homes", MOUNTS) == disks.Mount("/", "ext4")
    assert disks.mount_of("/home/a b/c", MOUNTS) == disks.Mount("/home/a b", "nfs4")
    assert disks.mount_of("/home", "") is None


def test_what_is_asked_of_which_filesystem():
    asked = disks.questions({"home": "/home/ada", "scratch": "/scratch"}, MOUNTS, "ada")
    assert asked["lfs scratch"] == ("lfs", "quota", "-q", "-u", "ada", "/scratch")
    assert set(asked) == {"df home", "quota", "df scratch", "lfs scratch"}


def test_room_of_a_quota_or_else_of_the_filesystem():
    df = {"df home": "     Used        Avail\n 1000 3000\n"}
    assert disks.room("home", "/home/ada", MOUNTS, df) == disks.Room(1000, 4000, False)
    with_quota = disks.room("home", "/home/ada", MOUNTS, {**df, "quota": QUOTA})
    assert with_quota == disks.Room(419430400 * 1024, 314572800 * 1024, True)
    assert with_quota.free == 0
    lustre = {"lfs scratch": "     /scratch\n   1024  0  4096  -  3 0 0 -\n"}
    scratch = disks.room("scratch", "/scratch", MOUNTS, lustre)
    assert scratch == disks.Room(2**20, 4 * 2**20, True)


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"quota": QUOTA.replace("/home", "/elsewhere")},
        {"quota": "/home 1 0 0 0"},
        {"quota": "/home [12] 5 6 0"},
        {"quota": "/home 1"},
        {"df home": "df: /home/ada: Stale file handle"},
    ],
)
def test_room_that_nobody_tells(answers):
    assert disks.room("home", "/home/ada", MOUNTS, answers) is None


def test_scratch_is_what_its_role_says(tmp_path):
    file = str(tmp_path / "scratch.json")
    assert disks.scratch(file) is None
    for text in ("", "[]", "{}", '{"root": "/s", "keep_days": "x"}'):
        Path(file).write_text(text)
        assert disks.scratch(file) is None
    Path(file).write_text('{"root": "/scratch", "keep_days": 30}')
    assert disks.scratch(file) == disks.Scratch("/scratch", 30)
    Path(file).write_text('{"root": "/scratch"}')
    assert disks.scratch(file) == disks.Scratch("/scratch", None)


# --- the message ---------------------------------------------------------------------------------


def test_all_of_it():
    answers = {
        "sinfo": SINFO,
        "squeue": "R\n",
        "reservations": reservation(),
        "df home": "Used Avail\n 1073741824 3221225472\n",
        "df scratch": "Used Avail\n 0 5497558138880\n",
    }
    places = {"home": "/home/ada", "scratch": "/scratch"}
    kept = disks.Scratch("/scratch", 30)
    lines = list(main.message(answers, places, kept, MOUNTS, 14, NOW))
    assert lines[3] == "Your jobs: 1 running, 0 waiting"
    assert lines[4].startswith("Maintenance of gpu[1-2]")
    assert lines[5:] == [
        "Your home: 3.0G of 4.0G free",
        "Scratch: /scratch, 5.0T of 5.0T free, files without use for 30 days are deleted",
    ]


def test_without_answers_there_is_next_to_nothing():
    places = {"home": "/home/ada", "scratch": "/scratch"}
    kept = disks.Scratch("/scratch", None)
    assert list(main.message({}, places, kept, "", 14, NOW)) == ["Scratch: /scratch"]


def test_what_hangs_or_fails_or_is_not_there_is_left_out():
    commands = {
        "hangs": ("sleep", "60"),
        "fails": ("sh", "-c", "echo x; exit 1"),
        "none": ("no-such-program-here",),
        "much": ("sh", "-c", "seq 100000"),
    }
    began = time.monotonic()
    answers = asking.ask(commands, os.environ, limit_s=0.5)
    assert time.monotonic() - began < 2
    assert set(answers) == {"much"}
    assert answers["much"].endswith("\n100000\n")


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Slurm's commands and df, made by a test; the packed program, run as a login runs it."""
    file = tmp_path / "login-message.pyz"
    file.write_bytes(archive.content())

    def run(*arguments, **scripts):
        for name, script in scripts.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(stat.S_IRWXU)
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": "/", "USER": "ada"}
        command = [sys.executable, "-I", "-S", str(file), *arguments]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    return run


def test_the_packed_program_runs_with_a_bare_python(commands):
    assert archive.content() == archive.content()
    said = commands(
        "14",
        "Ask: \x1b[2Jhpc@example.org",
        sinfo=f"cat <<'END'\n{SINFO}END",
        squeue='[ "$SLURM_TIME_FORMAT" = %s ] && echo R',
        scontrol="echo No reservations in the system",
    )
    lines = said.splitlines()
    assert lines[1].startswith("gpu*             1 of 3           10 of 24")
    assert "Your jobs: 1 running, 0 waiting" in lines
    assert lines[-1] == "Ask: [2Jhpc@example.org"


def test_a_site_that_tells_of_no_maintenance_does_not_ask(commands):
    asked = dict.fromkeys(("sinfo", "squeue", "df", "quota"), "exit 1")
    assert commands("0", scontrol=f"echo '{reservation(start=0, end=9e9)}'", **asked) == ""
    assert "Maintenance of" in commands("9999999", **asked)


def test_it_imports_next_to_nothing(commands, tmp_path):
    """Each of these takes some milliseconds."""
    command = [sys.executable, "-X", "importtime", "-I", "-S", tmp_path / "login-message.pyz", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "roles.user_examples.files.login_message.main" in loaded
    slow = {"argparse", "dataclasses", "inspect", "json", "pathlib", "re", "subprocess", "typing"}
    assert loaded & slow == set()


def test_nothing_that_hangs_holds_a_login_up(commands):
    began = time.monotonic()
    hanging = dict.fromkeys(("sinfo", "squeue", "scontrol", "df", "quota"), "sleep 60")
    said = commands("14", "Ask", **hanging)
    assert said == "Ask\n"
    assert time.monotonic() - began < 6
    assert json.dumps(said)
