"""The callback audit: each module's line in a node's journal says whose run it belongs to."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from cluster import version
from playbooks.callback_plugins import audit
from tests.conftest import REPOSITORY
from tests.processes import ANSIBLE_PLAYBOOK, git, run

BEGAN = datetime(2026, 11, 27, 9, 30, 12, tzinfo=timezone(timedelta(hours=1)))
# What Ansible hands to each module to write before its own line.
PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "{{ lookup('ansible.builtin.config', 'TARGET_LOG_INFO') }}"
"""


def test_the_line_says_who_ran_what_from_where_and_when() -> None:
    said = audit.line(["playbooks/slurm-cluster.yml"], "anna", "admin1", "0f3a2b1c", BEGAN)
    assert said == (
        "plumbline-run slurm-cluster.yml by anna on admin1 from 0f3a2b1c "
        "since 2026-11-27T08:30:12Z:"
    )


def test_a_name_with_a_line_of_its_own_forges_none() -> None:
    said = audit.line(["a.yml"], "anna\nplumbline-run b.yml by eve", "h\x1b[2J", "c", BEGAN)
    assert said.isprintable()


def test_whoever_became_root_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "root")
    assert audit.operator({}) == "root"
    assert audit.operator({"SUDO_USER": "anna"}) == "root (anna)"
    assert audit.operator({"SUDO_USER": "root"}) == "root"


def played(tmp_path: Path, **environment: str) -> str:
    (tmp_path / "play.yml").write_text(PLAY)
    done = run(
        ANSIBLE_PLAYBOOK,
        "-ilocalhost,",
        "--connection=local",
        tmp_path / "play.yml",
        cwd=REPOSITORY,
        env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_run_hands_its_line_to_every_module(tmp_path: Path) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT")
    said = played(tmp_path, **{audit.VARIABLE: "site plumbline-run other.yml by eve"})
    assert "eve" not in said
    assert "site plumbline-run play.yml by " in said
    assert f" from {version.commit()} since {now}" in said


def test_a_log_names_the_commit_or_the_release(tmp_path: Path) -> None:
    assert version.commit(tmp_path) == f"v{version.VERSION}"
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("x")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message=first")
    head = subprocess.run(
        ["git", "-C", str(tmp_path), "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert version.commit(tmp_path) == head.stdout[:12]
