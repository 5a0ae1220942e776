"""The module that notices a daemon with old files, against a systemctl that is told what to say."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.refused import Refused

from playbooks.library import daemon_inputs


class Node:
    """A host of folders below one, whose systemd is a few lines of shell and this class."""

    def __init__(self, root: Path):
        self.root = root
        self.etc = root / "etc"
        self.etc.mkdir()
        self.host = daemon_inputs.Host(units=root / "units", records=root / "run/plumbline")
        self.says(active="active")
        self.key = self.write("key", "one")

    def says(self, active: str, reload_needed: str = "no") -> None:
        (self.root / "state").write_text(
            f"ActiveState={active}\nNeedDaemonReload={reload_needed}\n"
        )

    def write(self, name: str, text: str) -> Path:
        path = self.etc / name
        path.write_text(text)
        return path

    @property
    def drop_in(self) -> Path:
        return self.root / "units/x.service.d/50-plumbline.conf"

    @property
    def record(self) -> Path:
        return self.root / "run/plumbline/x.started"

    def run(self, *files: str | Path, state="present", check_mode=False, settings=None, reload=()):
        return daemon_inputs.run(
            unit="x",
            files=[str(file) for file in files or (self.key,)],
            reload_files=[str(file) for file in reload],
            settings=settings or {},
            state=state,
            check_mode=check_mode,
            host=self.host,
        )

    def start(self) -> None:
        """Starts the daemon as systemd does: runs what the drop-in says before it."""
        self.record.parent.parent.mkdir(exist_ok=True)
        for line in self.drop_in.read_text().splitlines():
            if line.startswith("ExecStartPre=-+"):
                # shlex undoes the quoting as systemd does; then specifiers and variables.
                words = shlex.split(line.partition("-+")[2])
                words = [word.replace("$$", "$").replace("%%", "%") for word in words]
                subprocess.run(words, check=True)

    def calls(self) -> list[str]:
        log = self.root / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def node(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "systemctl"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = show ] && exec cat {tmp_path}/state\necho "$*" >>{tmp_path}/calls\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return Node(tmp_path)


@pytest.fixture
def started(node):
    """A node whose daemon was started with its drop-in; what systemctl was asked is forgotten."""
    node.run()
    node.start()
    node.calls()
    return node


def needs(result):
    return result["changed"], result["action"]


def test_a_daemon_without_a_record_is_restarted_and_then_left_alone(node):
    assert needs(node.run()) == (True, "restart")
    assert node.calls() == ["daemon-reload"]
    assert needs(node.run()) == (True, "restart")  # interrupted before its restart
    node.start()
    assert needs(node.run()) == (False, "none")
    assert node.calls() == []


def test_a_changed_file_is_noticed_until_the_restart(started):
    started.write("key", "two")
    result = started.run()
    assert needs(result) == (True, "restart")
    assert result["differs"] == [str(started.key)]
    started.start()
    assert needs(started.run()) == (False, "none")


def test_a_daemon_that_does_not_run_needs_nothing_but_its_drop_in(node):
    node.says(active="inactive")
    assert needs(node.run()) == (True, "none")
    assert needs(node.run()) == (False, "none")
    node.write("key", "two")
    assert needs(node.run()) == (False, "none")


def test_files_that_appear_and_vanish_are_noticed(node):
    pattern = node.etc / "conf.d *"  # a blank, as paths may have
    node.run(pattern)
    node.start()
    assert needs(node.run(pattern)) == (False, "none")
    first = node.write("conf.d a", "1")
    assert node.run(pattern)["differs"] == sorted([str(first), str(pattern)])
    node.start()
    assert needs(node.run(pattern)) == (False, "none")
    node.write("conf.d b", "2")
    assert node.run(pattern)["differs"] == [str(node.etc / "conf.d b")]
    node.start()
    first.unlink()
    assert node.run(pattern)["differs"] == [str(first)]


@pytest.mark.parametrize("name", ["per%cent", "dol$lar", "back\\slash", 'quo"te', "a'b", "s;emi&"])
def test_a_path_is_the_same_for_shell_and_systemd(node, name):
    file = node.write(name, "1")
    node.run(file)
    node.start()
    assert needs(node.run(file)) == (False, "none")
    node.write(name, "2")
    assert node.run(file)["differs"] == [str(file)]


def test_a_file_that_a_reload_takes_over(node):
    plugin = node.write("plugin", "1")
    node.run(reload=[plugin])
    node.start()
    node.write("plugin", "2")
    assert needs(node.run(reload=[plugin])) == (True, "reload")
    assert needs(node.run(reload=[plugin], state="recorded", check_mode=True)) == (True, "none")
    assert needs(node.run(reload=[plugin])) == (True, "reload")
    assert needs(node.run(reload=[plugin], state="recorded")) == (True, "none")
    assert needs(node.run(reload=[plugin])) == (False, "none")
    # A reload hides no change that needs a restart, nor is it enough for both.
    node.write("key", "two")
    node.write("plugin", "3")
    assert needs(node.run(reload=[plugin])) == (True, "restart")
    node.run(reload=[plugin], state="recorded")
    assert node.run(reload=[plugin])["differs"] == [str(node.key)]


def test_nothing_is_recorded_for_a_daemon_without_a_record(node):
    node.run()
    assert needs(node.run(reload=[node.key], state="recorded")) == (False, "none")
    assert not node.record.exists()


def test_settings_are_the_units_and_a_change_of_them_is_a_restart(node):
    settings = {"Unit": {"After": ["a.service", "b.service"]}, "Service": {"Restart": "on-failure"}}
    node.run(settings=settings)
    lines = node.drop_in.read_text().splitlines()
    assert lines.index("[Service]") < lines.index("Restart=on-failure") < lines.index("[Unit]")
    assert lines[-2:] == ["After=a.service", "After=b.service"]
    node.start()
    assert needs(node.run(settings=settings)) == (False, "none")
    result = node.run()
    assert (*needs(result), result["differs"]) == (True, "restart", ["unit"])
    assert "Restart" not in node.drop_in.read_text()


def test_a_start_between_the_drop_in_and_its_reload_is_noticed(node):
    """The record says which drop-in was in force, not which one lay there."""
    node.run()
    old = node.drop_in.read_text()
    node.run(settings={"Service": {"Nice": 5}})
    new = node.drop_in.read_text()
    node.drop_in.write_text(old)
    node.start()
    node.drop_in.write_text(new)
    assert node.run(settings={"Service": {"Nice": 5}})["differs"] == ["unit"]


def test_a_drop_in_that_systemd_has_not_read_is_read(started):
    started.says(active="active", reload_needed="yes")
    assert needs(started.run()) == (False, "none")
    assert started.calls() == ["daemon-reload"]


def test_check_mode_says_what_it_would_do_and_does_nothing(node):
    assert needs(node.run(check_mode=True)) == (True, "restart")
    assert not node.drop_in.exists()
    node.run()
    node.start()
    node.calls()
    node.says(active="active", reload_needed="yes")
    node.write("key", "two")
    result = node.run(check_mode=True)
    assert needs(result) == (True, "restart")
    assert node.calls() == []
    changed = result["diff"][1]
    assert changed["before"].startswith(f"{node.key} ")
    assert changed["before"] != changed["after"]


def test_the_record_is_roots_alone(started):
    assert stat.S_IMODE(started.record.stat().st_mode) == 0o600
    assert stat.S_IMODE(started.record.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(started.drop_in.stat().st_mode) == 0o644


def test_absent_leaves_the_unit_as_its_package_has_it(started):
    assert needs(started.run(state="absent", check_mode=True)) == (True, "none")
    assert started.drop_in.exists()
    assert needs(started.run(state="absent")) == (True, "none")
    assert not started.drop_in.parent.exists()
    assert not started.record.exists()
    assert started.calls() == ["daemon-reload"]
    assert needs(started.run(state="absent")) == (False, "none")
    assert started.calls() == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"unit": "a b"}, "'a b' is no name of a systemd unit"),
        ({"files": ["etc/x"]}, "'etc/x' is no absolute path"),
        ({"settings": {"Unit": "After"}}, "settings.Unit is no dictionary"),
        ({"settings": {"Unit": {"After": "a\nb"}}}, "settings.Unit.After must be one line"),
        ({"settings": {"Unit": {"After": {}}}}, "settings.Unit.After must be one line"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(node, change, sentence):
    arguments = {"unit": "x", "files": [], "reload_files": [], "settings": {}, "state": "present"}
    with pytest.raises(Refused, match="^" + sentence.replace("[", r"\[")):
        daemon_inputs.run(**arguments | change, check_mode=False, host=node.host)
    assert not node.drop_in.exists()


def test_a_systemctl_that_fails_is_an_error_with_its_words(node):
    (node.root / "bin/systemctl").write_text("#!/bin/sh\necho no bus >&2\nexit 1\n")
    with pytest.raises(Refused, match=r"systemctl show x\.service .* failed: no bus"):
        node.run()
