"""The callback load_once: no task loads a plugin that its parent could have loaded."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from playbooks.callback_plugins import load_once
from tests.processes import ANSIBLE_PLAYBOOK, PYTHON, passes, run

PLAY = """
- name: One of each kind of plugin
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: A filter of ours, a test, a lookup, an action
      ansible.builtin.assert:
        that:
          - (['gpu1', 'gpu2'] | compressed_hostlist) == 'gpu[1-2]'
          - "lookup('ansible.builtin.env', 'HOME') is string"

    - name: A filter of a role that comes later
      ansible.builtin.include_role:
        name: rdma
        tasks_from: refuse.yml

    - name: After a role's folder was added, in a process of its own
      ansible.builtin.command:
        cmd: "echo {{ ['a'] | map('upper') | first }} {{ ['gpu1', 'gpu2'] | compressed_hostlist }}"
      changed_when: false
"""


def loads(repository: Path, tmp_path: Path, callbacks: Path) -> list[str]:
    """The lines of count_loads for a run of PLAY, with the callbacks of a folder."""
    (tmp_path / "play.yml").write_text(PLAY)
    record = tmp_path / "loads"
    settings = {
        "ANSIBLE_CONFIG": str(repository / "ansible.cfg"),
        "ANSIBLE_CALLBACK_PLUGINS": f"{callbacks}:{repository}/tests/standins/callback_plugins",
        "COUNT_LOADS": str(record),
        "COUNT_FORKS": str(tmp_path / "forks"),
    }
    play = (ANSIBLE_PLAYBOOK, "-i", "localhost,", "-e", PYTHON, "play.yml")
    passes(*play, cwd=tmp_path, env=os.environ | settings)
    return record.read_text().splitlines()


def in_children(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("child ")]


def test_no_task_loads_a_plugin(repository: Path, tmp_path: Path) -> None:
    lines = loads(repository, tmp_path, repository / "playbooks/callback_plugins")
    assert any("playbooks/filter_plugins/hostlist.py" in line for line in lines)
    assert in_children(lines) == []
    assert (tmp_path / "forks").read_text().splitlines().count("localhost ok") == 1


@pytest.mark.long
def test_without_the_callback_each_task_does(repository: Path, tmp_path: Path) -> None:
    """So the test above can fail."""
    assert in_children(loads(repository, tmp_path, tmp_path))


# --- this checkout's packages --------------------------------------------------------------------


def test_packages_of_another_checkout_end_the_run(repository: Path, tmp_path: Path) -> None:
    """Its .venv would bring that one's rules, and nothing would say so."""
    other = tmp_path / "other"
    (other / "validation").mkdir(parents=True)
    (other / "validation" / "__init__.py").touch()
    (tmp_path / "play.yml").write_text(PLAY)
    settings = {"ANSIBLE_CONFIG": str(repository / "ansible.cfg"), "PYTHONPATH": str(other)}
    play = (ANSIBLE_PLAYBOOK, "-i", "localhost,", "play.yml")
    done = run(*play, cwd=tmp_path, env=os.environ | settings)
    assert done.returncode == 1
    assert "One of each kind of plugin" not in done.stdout
    assert done.stderr.splitlines()[-1] == (
        f"ERROR: Ansible does not run with the Python of {repository}/.venv: run scripts/setup "
        f"there, then source {repository}/.venv/bin/activate"
    )


def test_a_python_without_the_packages_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_once.own_packages(load_once.ROOT) == ""
    assert "run scripts/setup" in load_once.own_packages(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert "run scripts/setup" in load_once.own_packages(load_once.ROOT)
