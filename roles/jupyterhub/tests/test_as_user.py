"""The program that works as a user, with stand-ins for Slurm's commands."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from roles.jupyterhub.files.portal import account, as_user

RECORDER = """#!{python}
import json, os, sys
with open({record!r}, "w") as file:
    json.dump([sys.argv, sys.stdin.read() if {stdin} else "", dict(os.environ)], file)
print({out!r})
sys.exit({code})
"""


@pytest.fixture
def person(tmp_path: Path) -> account.Account:
    home = tmp_path / "home"
    home.mkdir()
    return account.Account("ada", 2001, str(home), "/bin/bash", frozenset({"ada"}))


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that makes a stand-in for a command, and one that reads how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(as_user, "PATH", f"{folder}:{as_user.PATH}")

    def make(name: str, out: str = "", code: int = 0, stdin: bool = False):
        record = tmp_path / f"{name}.json"
        text = RECORDER.format(
            python=sys.executable, record=str(record), out=out, code=code, stdin=stdin
        )
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
        return lambda: json.loads(record.read_text())

    return make


def test_submit_gives_arguments_as_they_are_and_no_shell(person, stand_in) -> None:
    called = stand_in("sbatch", "4711", stdin=True)
    answer = as_user.submit(
        person,
        {
            "arguments": ["--partition=$(id) ; true"],
            "environment": {"JUPYTERHUB_API_TOKEN": "secret"},
            "script": "#!/bin/sh\n",
        },
    )
    argv, script, environment = called()
    assert answer == {"code": 0, "out": "4711\n", "err": ""}
    assert argv[1:] == ["--parsable", "--export=ALL", "--partition=$(id) ; true"]
    assert script == "#!/bin/sh\n"
    assert environment["HOME"] == person.home
    assert environment["JUPYTERHUB_API_TOKEN"] == "secret"
    assert "SUDO_USER" not in environment


def test_nothing_is_submitted_without_a_home_to_write_to(person, stand_in, monkeypatch) -> None:
    stand_in("sbatch", "4711")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    answer = as_user.submit(person, {"arguments": [], "environment": {}, "script": ""})
    assert answer["code"] == 1
    assert "Nothing can be written to your home" in answer["err"]
    assert "No space left on device" in answer["err"]
    assert not list(Path(person.home).iterdir())  # the probe is gone


def test_a_home_with_little_room_is_refused(person, monkeypatch) -> None:
    monkeypatch.setattr(as_user, "_room", lambda home: 1024)
    assert "has 1 KiB left, and a notebook needs 20 MiB" in as_user.home_problem(person.home)
    monkeypatch.setattr(as_user, "_room", lambda home: 20 * 1024 * 1024)
    assert as_user.home_problem(person.home) == ""


def test_the_room_of_a_home_is_what_is_left_for_users(person, tmp_path) -> None:
    disk = os.statvfs(person.home)
    assert as_user._room(person.home) == pytest.approx(disk.f_bavail * disk.f_frsize, rel=0.1)
    assert as_user._room(str(tmp_path / "gone")) is None


def test_a_home_is_tried_by_writing_more_than_a_block(person, monkeypatch) -> None:
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda file: sizes.append(os.fstat(file).st_size))
    assert as_user.home_problem(person.home) == ""
    assert sizes == [65536]


def test_query_asks_accounting_once_slurmctld_has_forgotten(person, stand_in) -> None:
    stand_in("squeue", "", code=0)
    stand_in("sacct", "NODE_FAIL|gpu1|2026-11-26T10:00:00")
    answer = as_user.query(person, {"job": "7"})
    assert answer == {"code": 0, "out": "NODE_FAIL;;gpu1;2026-11-26T10:00:00;", "err": ""}
    stand_in("sacct", "")
    assert as_user.query(person, {"job": "7"}) == {"code": 0, "out": "NOT_FOUND;;;;", "err": ""}


def test_query_asks_slurmctld_while_it_knows_the_job(person, stand_in) -> None:
    stand_in("squeue", "RUNNING;None;gpu1;;")
    called = stand_in("sacct", "NODE_FAIL|gpu1|x")
    assert as_user.query(person, {"job": "7"})["out"].strip() == "RUNNING;None;gpu1;;"
    with pytest.raises(FileNotFoundError):
        called()


def test_a_command_that_hangs_or_is_not_there_is_an_answer(person, stand_in, monkeypatch) -> None:
    monkeypatch.setattr(as_user, "SECONDS", 0.2)
    assert as_user.run(["sleep", "5"], "/") == {
        "code": 124,
        "out": "",
        "err": "sleep did not answer within 0.2 s",
    }
    assert as_user.run(["no-such-command"], "/") == {
        "code": 127,
        "out": "",
        "err": "no-such-command: No such file or directory",
    }


def test_look_asks_for_everything_that_the_form_shows(person, stand_in) -> None:
    stand_in("sinfo", "sinfo")
    stand_in("sacctmgr", "sacctmgr")
    answer = as_user.look(person, {})
    assert {key: answer[key]["out"].strip() for key in answer if key != "home"} == {
        "nodes": "sinfo",
        "associations": "sacctmgr",
        "account": "sacctmgr",
        "qos": "sacctmgr",
    }
    assert answer["home"] == ""
    gone = account.Account("ada", 2001, f"{person.home}/gone", "", frozenset())
    answer = as_user.look(gone, {})
    assert answer["nodes"]["code"] == 0  # it looks from elsewhere
    assert answer["home"].startswith(f"Your home {gone.home} does not exist on this host.")


def test_query_does_not_guess_while_slurmctld_is_away(person, stand_in) -> None:
    stand_in("squeue", "", code=1)
    called = stand_in("sacct", "COMPLETED|gpu1||")
    assert as_user.query(person, {"job": "7"})["code"] == 1
    stand_in("squeue", "RUNNING;None;gpu1;;", code=1)
    assert as_user.query(person, {"job": "7"})["code"] == 1
    with pytest.raises(FileNotFoundError):
        called()


def test_a_job_is_a_number(person) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        as_user.query(person, {"job": "7; rm -rf /"})
    with pytest.raises(ValueError, match="invalid literal"):
        as_user.cancel(person, {"job": "--me"})


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ({"uid": 0, "name": "root"}, "root is an account of the system."),
        ({"uid": 999, "name": "munge"}, "munge is an account of the system."),
        ({"uid": 65534, "name": "nobody"}, "nobody is an account of the system."),
        ({"groups": frozenset({"sudo"})}, "ada is in the group sudo"),
        ({"name": "ops", "uid": 1000}, "ops is an account of operators"),
        ({"groups": frozenset({"other"})}, "ada is in none of the groups cluster."),
        ({}, ""),
    ],
)
def test_who_may_use_the_portal(known: dict[str, Any], sentence: str) -> None:
    usual: dict[str, Any] = {
        "name": "ada",
        "uid": 2001,
        "home": "/",
        "shell": "",
        "groups": {"cluster"},
    }
    person = account.Account(**(usual | known))
    problem = account.Rule(["cluster"], ["sudo"], ["ops"]).problem(person)
    assert problem.startswith(sentence)
    assert bool(problem) == bool(sentence)


def test_the_program_refuses_whom_the_rule_refuses(monkeypatch, capsys) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"action": "look"}'))
    assert as_user.main(account.Rule()) == 1
    assert json.loads(capsys.readouterr().out)["err"] == "root is an account of the system."


def test_the_program_answers_and_makes_files_for_the_user_alone(
    person, stand_in, monkeypatch, capsys
) -> None:
    stand_in("scancel", "")
    monkeypatch.setattr(account, "of_uid", lambda uid: person)
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"action": "cancel", "job": 7}'))
    before = os.umask(0o022)
    try:
        assert as_user.main(account.Rule()) == 0
        assert os.umask(0o022) == 0o077
    finally:
        os.umask(before)
    assert json.loads(capsys.readouterr().out)["code"] == 0


def test_an_account_has_its_groups_by_name() -> None:
    root = account.of_uid(0)
    assert (root.name, root.uid) == ("root", 0)
    assert "root" in root.groups


def test_a_group_without_a_name_is_its_number(monkeypatch) -> None:
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [0, 4_000_000_000])
    assert account.of_name("root").groups == {"root", "4000000000"}
