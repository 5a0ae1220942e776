"""Looks: what may answer a task, what is remembered, and that the modules themselves answer."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ansible.modules
import pytest

from playbooks.callback_plugins import looks
from playbooks.plugin_utils import look, look_files, module_archive
from playbooks.plugin_utils.look import Question, Remembered
from playbooks.plugin_utils.look_files import Run, Taken
from playbooks.plugin_utils.node_reader import command
from tests import processes

FILE = Question("file", '{"path": "/etc/hosts", "mode": "0644"}')
STAT = Question("stat", '{"path": "/etc/hosts"}')
ASKS = Question("command", '{"_raw_params": "sinfo"}', reads=True)
INTERNAL = {
    "_ansible_no_log": False,
    "_ansible_debug": False,
    "_ansible_diff": False,
    "_ansible_verbosity": 0,
    "_ansible_version": "2.19.0",
    "_ansible_syslog_facility": "LOG_USER",
    "_ansible_selinux_special_fs": [],
    "_ansible_shell_executable": "/bin/sh",
    "_ansible_keep_remote_files": False,
    "_ansible_tmpdir": None,
    "_ansible_remote_tmp": "/tmp",
}


# --- what counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "answer", "counts"),
    [
        (STAT, {"changed": False, "stat": {}}, True),
        (FILE, {"changed": True}, False),
        (STAT, {"stat": {}}, True),  # does nothing else than read
        (FILE, {"path": "/etc/hosts"}, False),  # says nothing of a change
        (STAT, {"changed": False, "failed": True}, False),
        (STAT, {"changed": False, "skipped": True}, False),  # has no check mode
        (STAT, {"changed": False, "warnings": ["x"]}, False),  # the task's to show
        (ASKS, {"changed": True, "rc": 0, "stdout": ""}, True),
        (ASKS, {"changed": True, "failed": True, "rc": 1}, True),  # the task's to judge
        (ASKS, {"failed": True, "exception": "x"}, False),
    ],
)
def test_what_answers_a_task(question: Question, answer: dict[str, Any], counts: bool) -> None:
    assert look.usable(question, answer) is counts


def test_another_argument_is_another_question() -> None:
    others = [
        STAT,
        Question("file", STAT.arguments),
        Question("stat", '{"path": "/etc/host"}'),
        Question("stat", STAT.arguments, reads=True),
    ]
    assert len({question.key for question in others}) == len(others)


def test_a_command_has_its_lines_as_ansible_gives_them() -> None:
    answer = {"stdout": "a\nb", "stderr": ""}
    lines = {"stdout_lines": ["a", "b"], "stderr_lines": []}
    assert look.as_returned(answer | {"_ansible_parsed": True}) == answer | lines


def test_what_differs_in_each_run_is_no_part_of_a_question() -> None:
    arguments = {"path": "/a", "_original_basename": ".x1", "_ansible_diff": True}
    assert look.own_arguments("file", arguments) == {"path": "/a"}
    assert look.own_arguments("file", {"_original_basename": "a"}) == {"_original_basename": "a"}
    assert look.own_arguments("stat", arguments) == {"path": "/a", "_original_basename": ".x1"}


def test_a_module_that_ignores_what_it_does_not_know_is_asked_so() -> None:
    lenient = STAT.lenient()
    assert lenient.key != STAT.key
    assert json.loads(lenient.arguments)["_ansible_ignore_unknown_opts"] is True


def test_a_command_with_a_condition_compares() -> None:
    assert look.has_condition("command", {"creates": "/a"})
    assert not look.has_condition("command", {"creates": None})
    assert not look.has_condition("file", {"creates": "/a"})


# --- what is remembered --------------------------------------------------------------------------


def test_what_is_used_stays_and_what_is_not_is_forgotten() -> None:
    known = [Remembered(STAT), Remembered(ASKS)]
    for _ in range(look.PATIENCE):
        known = look.remember(known, [], [(STAT.key, False)], [False])
    assert known == [Remembered(STAT)]


def test_a_run_without_a_look_forgets_nothing() -> None:
    known = [Remembered(STAT, 1)]
    new = [Remembered(ASKS)]
    assert look.remember(known, new, [], []) == [*new, Remembered(STAT, 1)]


def test_before_the_hold_and_after_it_a_question_is_another() -> None:
    """What only preflight asks is not answered once more for those who deploy."""
    known = [Remembered(STAT, 1), Remembered(STAT, 1, held=True)]
    assert look.remember(known, [], [(STAT.key, False)], [False, True]) == [Remembered(STAT)]
    assert look.remember(known, [], [], [True]) == [Remembered(STAT, 1)]


def test_questions_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_files, "CACHE", tmp_path)
    kept = [Remembered(STAT, 1), Remembered(ASKS, held=True)]
    look_files.keep_questions(["/a"], "gpu1", kept)
    assert look_files.known_questions(["/a"], "gpu1") == kept
    assert look_files.known_questions(["/b"], "gpu1") == []
    (file,) = tmp_path.rglob("gpu1")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("half a li")
    assert look_files.known_questions(["/a"], "gpu1") == []


def test_an_answer_ends_with_the_next_change(tmp_path: Path) -> None:
    run = Run.of(str(tmp_path))
    assert run.taken("gpu1") is None
    run.keep("gpu1", Taken(run.changes(), "a play", useful=True), {STAT.key: {"changed": False}})
    assert run.answer("gpu1", STAT.key) == {"changed": False}
    assert run.answer("gpu2", STAT.key) is None
    run.note_change()
    taken = run.taken("gpu1")
    assert taken is not None
    assert taken.changes != run.changes()


@pytest.mark.parametrize(
    ("event", "action", "check_mode", "changed", "held", "changes"),
    [
        ("ok", "hold", False, False, True, 1),
        ("skipped", "hold", True, False, True, 1),  # check mode asks on as a run does
        ("skipped", "file", True, False, False, 0),
        ("ok", "file", True, True, False, 0),  # a change that is only predicted
        ("ok", "file", False, True, False, 1),
        ("failed", "file", False, False, False, 1),
    ],
)
def test_what_ends_a_look(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    event: str,
    action: str,
    check_mode: bool,
    changed: bool,
    held: bool,
    changes: int,
) -> None:
    run = Run.of(str(tmp_path))
    monkeypatch.setattr("playbooks.plugin_utils.looking.this_run", lambda: run)
    task = SimpleNamespace(action=action, check_mode=check_mode)
    result = SimpleNamespace(_task=task, _result={"changed": changed})
    getattr(looks.CallbackModule(), f"v2_runner_on_{event}")(result)
    assert (run.held(), run.changes()) == (held, changes)


def test_a_look_knows_nothing_of_the_look_before_it(tmp_path: Path) -> None:
    run = Run.of(str(tmp_path))
    run.keep("gpu1", Taken(0, "a play", useful=True), {STAT.key: {}, ASKS.key: {}})
    run.note_used("gpu1", STAT.key)
    run.note_hold()
    assert run.changes() == 1
    run.keep("gpu1", Taken(1, "a play", useful=True, held=run.held()), {STAT.key: {}})
    assert run.answer("gpu1", ASKS.key) is None
    run.note_used("gpu1", STAT.key)
    run.note_asked("gpu1", ASKS)
    assert run.used("gpu1") == {(STAT.key, False), (STAT.key, True)}
    assert run.looked("gpu1") == {False, True}
    assert list(run.questions("gpu1")) == [Remembered(ASKS, held=True)]


# --- the program ---------------------------------------------------------------------------------


def answers(questions: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """What the program of the archive says on this machine."""
    folder = Path(ansible.modules.__file__).parent
    names = {name for name, _ in questions.values()}
    buffer = io.BytesIO(module_archive.archive({name: folder / f"{name}.py" for name in names}))
    with zipfile.ZipFile(buffer, "a") as archive:
        calls = {
            key: (name, {**INTERNAL, "_ansible_module_name": name, **arguments})
            for key, (name, arguments) in questions.items()
        }
        archive.writestr(module_archive.QUESTIONS, module_archive.document(calls))
    done = subprocess.run(
        ["/bin/sh", "-c", command([]).replace("python3", sys.executable, 1)],
        input=buffer.getvalue(),
        capture_output=True,
        check=True,
    )
    results: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])["look"]
    return results


def test_the_modules_themselves_answer(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    file.chmod(0o644)
    path, check = str(file), {"_ansible_check_mode": True}
    questions: dict[str, tuple[str, dict[str, Any]]] = {
        "stat": ("stat", {"path": path, **check}),
        "as wanted": ("file", {"path": path, "mode": "0644", **check}),
        "other mode": ("file", {"path": path, "mode": "0600", **check}),
        "reads": ("command", {"_raw_params": f"cat {path}", "_ansible_check_mode": False}),
        "there": ("command", {"_raw_params": f"rm {path}", "creates": path, **check}),
        "lenient": ("stat", {"path": path, "x": 1, "_ansible_ignore_unknown_opts": True}),
        "wrong": ("stat", {"pth": path, **check}),
    }
    results = answers(questions)
    assert results["stat"]["stat"]["size"] == 4
    assert results["as wanted"]["changed"] is False
    assert results["other mode"]["changed"] is True
    assert file.stat().st_mode & 0o777 == 0o644  # asked, not done
    assert results["reads"]["stdout"] == "text"
    assert results["wrong"]["failed"] is True
    assert results["there"]["changed"] is False
    assert file.exists()
    assert results["lenient"]["stat"]["size"] == 4


def test_one_that_breaks_leaves_the_others(tmp_path: Path) -> None:
    """A module that prints nothing has no answer, and its task asks it by itself."""
    killed = ("command", {"_raw_params": "sh -c 'kill -9 $PPID'"})
    results = answers({"killed": killed, "stat": ("stat", {"path": str(tmp_path)})})
    assert set(results) == {"stat"}


# --- they are Ansible's actions ------------------------------------------------------------------


LOADED = """
import json
from ansible.plugins import loader
if {once}:
    from playbooks.callback_plugins import load_once
    load_once.name_roles_folders()
    load_once.load_plugins()
bases = {{}}
for name in ("normal", "command", "copy", "template", "uri"):
    ours = loader.action_loader.get("ansible.legacy." + name, class_only=True)
    bases[name] = [base.__module__.rpartition(".")[2] for base in ours.__mro__]
print(json.dumps(bases))
"""


@pytest.mark.parametrize("once", [False, True])
def test_ansible_takes_them_for_its_own(repository: Path, once: bool) -> None:
    """With and without `load_once`."""
    program = LOADED.format(once=once)
    settings = os.environ | {"ANSIBLE_CONFIG": str(repository / "ansible.cfg")}
    done = processes.run(sys.executable, "-c", program, env=settings)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    bases = json.loads(done.stdout)
    for name in ("normal", "command", "copy"):
        assert "looking" in bases[name]
        assert f"plumbline_builtin_action_{name}" in bases[name]
    for name in ("template", "uri"):
        assert f"plumbline_builtin_action_{name}" in bases[name]
