"""Which hosts a run is for that has more to tell than --limit names; then real runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from playbooks.callback_plugins.reach import reached
from tests.conftest import REPOSITORY
from tests.processes import ANSIBLE_PLAYBOOK, passes

PLAYBOOK = """---
- name: First
  hosts: all
  gather_facts: false
  vars: {__run_reaches: [controllers, missing]}
  tasks: []
- name: Second
  hosts: all
  gather_facts: false
  tasks:
    - name: Speak
      ansible.builtin.debug:
        msg: here
"""
HOSTS = """---
all:
  children:
    controllers: {hosts: {ctl1: }}
    nodes: {hosts: {gpu1: , gpu2: , gpu3: }}
    rack1: {hosts: {gpu1: , gpu3: }}
"""


def test_each_host_comes_once_and_a_missing_group_is_nobody() -> None:
    members = {"controllers": ["ctl1"], "monitoring": ["ctl1", "mon1"]}
    hosts = reached(["controllers", "monitoring", "x"], members, ["gpu1", "ctl1"])
    assert hosts == ["gpu1", "ctl1", "mon1"]


@pytest.mark.parametrize(
    ("limit", "hosts"),
    [
        (("--limit", "gpu1,gpu2"), {"ctl1", "gpu1", "gpu2"}),
        (("--limit", "nodes:&rack1:!gpu1"), {"ctl1", "gpu3"}),
        (("--limit", "@limit"), {"ctl1", "gpu2"}),
        ((), {"ctl1"}),
    ],
)
def test_a_run_is_for_the_hosts_of_limit_and_those_that_must_know(
    tmp_path: Path, limit: tuple[str, ...], hosts: set[str]
) -> None:
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    (tmp_path / "hosts.yml").write_text(HOSTS)
    (tmp_path / "limit").write_text("gpu2\n")
    settings = {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    play = (ANSIBLE_PLAYBOOK, "-i", "hosts.yml", "play.yml", *limit)
    output = passes(*play, cwd=tmp_path, env=os.environ | settings)
    assert set(re.findall(r"^ok: \[(\w+)\]", output, re.MULTILINE)) == hosts
