"""One run at a time on one inventory: the verdict, then real runs beside each other."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from playbooks.action_plugins import hold as module
from playbooks.action_plugins.hold import Hold, parse, refusal, take
from playbooks.callback_plugins import hold as letting_go
from tests.processes import ANSIBLE_PLAYBOOK

MINE = Hold("me", "here", "boot1", 10, "500", "2026-01-02 03:04 UTC", "ansible-playbook a.yml")
OTHER = dataclasses.replace(MINE, user="ana", pid=20, started="700", command="ansible-playbook b")


def judged(held: Hold | None, *, alive: bool = True, break_it: bool = False) -> str:
    return refusal(held, MINE, break_it=break_it, alive=lambda pid, started: alive)


# --- the verdict ---------------------------------------------------------------------------------


def test_no_hold_my_own_and_one_of_the_dead_are_free() -> None:
    assert judged(None) == ""
    assert judged(MINE) == ""
    assert judged(OTHER, alive=False) == ""


def test_a_hold_of_before_the_reboot_is_free() -> None:
    assert judged(dataclasses.replace(OTHER, boot="boot0")) == ""


def test_a_living_run_is_named_and_cannot_be_broken() -> None:
    for break_it in (False, True):
        assert judged(OTHER, break_it=break_it) == (
            "This inventory is held by ana on here since 2026-01-02 03:04 UTC by process 20 "
            "(ansible-playbook b); wait until that run has ended, or end it, and run this again."
        )


def test_a_hold_of_another_machine_is_refused_until_it_is_broken() -> None:
    elsewhere = dataclasses.replace(OTHER, host="there", boot="boot9")
    sentence = judged(elsewhere, alive=False)
    assert "ana on there" in sentence
    assert "cluster_hold_break=true" in sentence
    assert judged(elsewhere, alive=False, break_it=True) == ""


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"user": "a"}', '{"pid": 1, "x": 2}'])
def test_what_was_cut_off_in_writing_is_no_hold(text: str) -> None:
    assert parse(text) is None


# --- processes -----------------------------------------------------------------------------------


def test_a_process_is_known_by_its_start() -> None:
    own = os.getpid()
    assert module.start_time(own).isdecimal()
    assert module.is_alive(own, module.start_time(own))
    assert not module.is_alive(own, "1")


def test_a_process_that_has_ended_is_not_alive() -> None:
    process = subprocess.Popen(["sleep", "60"])
    started = module.start_time(process.pid)
    assert module.is_alive(process.pid, started)
    process.kill()
    process.wait()
    assert not module.is_alive(process.pid, started)
    assert module.start_time(process.pid) == ""


# --- the file ------------------------------------------------------------------------------------


def test_a_hold_is_taken_kept_and_let_go(tmp_path: Path) -> None:
    path = tmp_path / "hold"
    mine = module.hold_of(os.getpid(), "ansible-playbook a.yml")
    assert take(path, mine) == ""
    assert parse(path.read_text()) == mine
    assert take(path, mine) == ""
    other = dataclasses.replace(mine, pid=os.getppid(), started=module.start_time(os.getppid()))
    assert take(path, other).startswith(f"This inventory is held by {mine.user} on {mine.host}")
    assert parse(path.read_text()) == mine

    letting_go.let_go(path, other.pid, other.host)
    assert parse(path.read_text()) == mine
    letting_go.let_go(path, mine.pid, mine.host)
    assert path.read_text() == ""
    assert take(path, other) == ""


def test_letting_go_of_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    letting_go.let_go(tmp_path / "none", 1, "here")
    (tmp_path / "broken").write_text("{")
    letting_go.let_go(tmp_path / "broken", 1, "here")


# --- through Ansible -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Site:
    """An inventory of this machine, and runs on it that last until they are told to end."""

    folder: Path
    repository: Path
    runs: list[subprocess.Popen[str]] = dataclasses.field(default_factory=list)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        settings = {
            "ANSIBLE_CONFIG": str(self.repository / "ansible.cfg"),
            # The name of a task appears when it begins, not with its first result.
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
            "PYTHONUNBUFFERED": "1",
        }
        run = subprocess.Popen(
            [ANSIBLE_PLAYBOOK, "-i", "hosts.yml", "site.yml", *arguments],
            cwd=self.folder,
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.runs.append(run)
        return run

    def started(self, process: subprocess.Popen[str]) -> None:
        """Wait until a run is past its hold."""
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("TASK [Work]"):
                return
        pytest.fail("the run ended early")

    def end(self, process: subprocess.Popen[str]) -> None:
        (self.folder / "end").touch()
        output = process.communicate(timeout=60)[0]
        assert process.returncode == 0, output

    def refused(self, *arguments: str) -> str:
        process = self.start(*arguments)
        output = process.communicate(timeout=60)[0]
        assert process.returncode == 2, output
        assert "TASK [Work]" not in output
        return " ".join(output.split())

    @property
    def hold(self) -> Path:
        return self.folder / ".plumbline-hold"


@pytest.fixture
def site(tmp_path: Path, repository: Path) -> Iterator[Site]:
    (tmp_path / "hosts.yml").write_text(
        "all: {children: {slurm_cluster: {vars: {ansible_connection: local, "
        f"ansible_python_interpreter: {sys.executable}}}, hosts: {{a: , b: }}}}}}}}\n"
    )
    (tmp_path / "site.yml").write_text(
        f"- ansible.builtin.import_playbook: {repository}/playbooks/hold.yml\n"
        "- hosts: slurm_cluster\n"
        "  gather_facts: false\n"
        "  tasks:\n"
        "    - name: Work\n"
        f"      ansible.builtin.wait_for: {{path: {tmp_path}/end, timeout: 60, sleep: 1}}\n"
    )
    site = Site(tmp_path, repository)
    yield site
    for run in site.runs:
        if run.poll() is None:
            os.killpg(run.pid, 9)
        if run.stdout and not run.stdout.closed:
            run.communicate()


def test_the_second_run_is_refused_and_says_who_is_at_work(site: Site) -> None:
    first = site.start("--limit", "b")
    site.started(first)
    held = parse(site.hold.read_text())
    assert held is not None
    assert (held.pid, held.host) == (first.pid, socket.gethostname())

    output = site.refused("-e", "cluster_hold_break=true")
    assert f"held by {held.user} on {held.host} since {held.since} by process {first.pid}" in output
    assert "(ansible-playbook site.yml --limit b)" in output
    assert "Nothing was configured" in output

    site.end(first)
    assert site.hold.read_text() == ""
    site.end(site.start())


@pytest.mark.long
def test_of_two_runs_that_begin_together_one_works(site: Site) -> None:
    both = [site.start(), site.start()]
    refused: list[subprocess.Popen[str]] = []
    while not refused:  # the other one waits for the file `end`
        refused = [run for run in both if run.poll() is not None]
    assert refused[0].returncode == 2
    [working] = [run for run in both if run is not refused[0]]
    assert f"process {working.pid}" in " ".join(refused[0].communicate()[0].split())
    site.end(working)


@pytest.mark.long
def test_after_a_kill_the_next_run_just_works(site: Site) -> None:
    first = site.start()
    site.started(first)
    os.killpg(first.pid, 9)
    first.communicate()
    assert parse(site.hold.read_text()) is not None
    site.end(site.start())


@pytest.mark.long
def test_a_run_in_check_mode_neither_takes_nor_minds_the_hold(site: Site) -> None:
    elsewhere = json.dumps(dataclasses.asdict(dataclasses.replace(OTHER, host="elsewhere")))
    site.hold.write_text(elsewhere)
    (site.folder / "end").touch()
    site.end(site.start("--check"))
    assert site.hold.read_text() == elsewhere
    assert "held by ana on elsewhere" in site.refused()
    site.end(site.start("-e", "cluster_hold_break=true"))


def test_a_folder_that_cannot_be_written_is_told(site: Site) -> None:
    site.hold.mkdir()
    assert "cannot be written (Is a directory)" in site.refused()
