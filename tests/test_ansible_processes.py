"""tests/ansible_processes.py: runs that begin where Ansible is loaded are runs like any other."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ansible_processes, processes
from tests.conftest import REPOSITORY
from tests.processes import PYTHON

LOCAL = ("-i", "localhost,")


@pytest.fixture
def playbook(tmp_path: Path) -> Any:
    """A function that writes a play on this machine."""

    def write(*tasks: dict[str, Any]) -> Path:
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False}
        path = tmp_path / "play.yml"
        path.write_text(json.dumps([play | {"tasks": tasks}]))
        return path

    return write


def say(text: str) -> dict[str, Any]:
    return {"ansible.builtin.debug": {"msg": text}}


def test_a_run_says_what_it_says_in_a_process_of_its_own(playbook):
    play = playbook(say("{{ ['b', 'a'] | sort }}"), say("{{ lookup('env', 'WORD') }}"))
    environment = os.environ | {"WORD": "hello"}
    arguments = (*LOCAL, play, "--check")
    forked = ansible_processes.run(*arguments, env=environment)
    own = processes.run(processes.ANSIBLE_PLAYBOOK, *arguments, env=environment, cwd=REPOSITORY)
    assert "hello" in own.stdout
    assert (forked.returncode, forked.stdout, forked.stderr) == (0, own.stdout, own.stderr)


def test_a_run_that_fails_has_ansibles_status(playbook, tmp_path):
    failed = ansible_processes.run(*LOCAL, playbook({"ansible.builtin.fail": {"msg": "no"}}))
    assert (failed.returncode, "failed=1" in failed.stdout) == (2, True)
    missing = ansible_processes.run(*LOCAL, tmp_path / "none.yml")
    assert (missing.returncode, "could not be found" in missing.stderr) == (1, True)


def test_a_run_knows_nothing_of_the_one_before(playbook):
    fact = {"ansible.builtin.set_fact": {"colour": "red"}}
    assert ansible_processes.run(*LOCAL, playbook(fact)).returncode == 0
    shown = ansible_processes.run(*LOCAL, playbook(say("{{ colour | default('unknown') }}")))
    assert "unknown" in shown.stdout


@pytest.mark.long
def test_a_run_has_a_folder_that_ends_with_it(playbook, tmp_path):
    folders = tmp_path / "folders"
    show = {"ansible.builtin.command": {"argv": ["ls", str(folders)]}, "register": "shown"}
    play = playbook(show, say("{{ shown.stdout_lines | length }} folders"))
    environment = os.environ | {"ANSIBLE_LOCAL_TEMP": str(folders)}
    for _ in range(2):
        done = ansible_processes.run(*LOCAL, "-e", PYTHON, play, env=environment)
        assert (done.returncode, "2 folders" in done.stdout) == (0, True), done.stdout
        # What modules are packed into stays for the next one.
        (server,) = folders.iterdir()
        assert [path.name for path in server.iterdir()] == ["ansiballz_cache"]
        assert list(server.glob("*/*command*"))


def test_a_run_that_lasts_too_long_is_ended(playbook):
    play = playbook({"ansible.builtin.pause": {"seconds": 3}})
    with pytest.raises(TimeoutError, match=r"not ended after 0.5 s"):
        ansible_processes.run(*LOCAL, play, timeout=0.5)
    assert ansible_processes.run(*LOCAL, playbook(say("next"))).returncode == 0


def test_a_process_that_is_handed_a_server_starts_none(playbook):
    variables, files = ansible_processes.handed_on(cwd=REPOSITORY, env=os.environ)
    program = (
        "import sys; from tests import ansible_processes as a; "
        "a._started = None; print(a.run(*sys.argv[1:]).stdout)"
    )
    command = (sys.executable, "-c", program, *LOCAL, playbook(say("handed")))
    for environment in (os.environ | variables, os.environ | variables | {"NO_COLOR": "other"}):
        done = processes.run(*command, env=environment, cwd=REPOSITORY, pass_fds=files)
        # One of other settings would have to start one.
        assert (done.returncode, "handed" in done.stdout) == (
            (0, True) if environment.get("NO_COLOR") != "other" else (1, False)
        )
