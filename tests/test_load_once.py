"""The callback load_once: no task loads a plugin that its parent could have loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def loads(repository: Path, tmp_path: Path, environment: dict[str, str]) -> list[str]:
    """The lines of count_loads for a run of PLAY."""
    (tmp_path / "play.yml").write_text(PLAY)
    record = tmp_path / "loads"
    callbacks = environment.pop("CALLBACKS", f"{repository}/playbooks/callback_plugins")
    done = subprocess.run(
        [
            Path(sys.executable).with_name("ansible-playbook"),
            *("-i", "localhost,", "-e", f"ansible_python_interpreter={sys.executable}", "play.yml"),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(repository / "ansible.cfg"),
            "ANSIBLE_CALLBACK_PLUGINS": f"{callbacks}:{repository}/tests/standins/callback_plugins",
            "COUNT_LOADS": str(record),
            "COUNT_FORKS": str(tmp_path / "forks"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return record.read_text().splitlines()


def in_children(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("child ")]


def test_no_task_loads_a_plugin(repository: Path, tmp_path: Path) -> None:
    lines = loads(repository, tmp_path, {})
    assert any("playbooks/filter_plugins/hostlist.py" in line for line in lines)
    assert in_children(lines) == []
    assert (tmp_path / "forks").read_text().splitlines().count("localhost ok") == 1


@pytest.mark.long
def test_without_the_callback_each_task_does(repository: Path, tmp_path: Path) -> None:
    """So the test above can fail."""
    assert in_children(loads(repository, tmp_path, {"CALLBACKS": str(tmp_path)}))
