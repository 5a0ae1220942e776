"""Which hosts a run is for that has more to tell than --limit names; then real runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from playbooks.callback_plugins.reach import pattern, reached
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


@pytest.mark.parametrize(
    ("limit", "told", "deployed"),
    [
        (("--limit", "gpu2"), {"ctl1", "gpu1", "gpu3"}, {"ctl1", "gpu2"}),
        (("--limit", "gpu1,gpu2,gpu3"), {"ctl1"}, {"ctl1", "gpu1", "gpu2", "gpu3"}),
    ],
)
def test_others_are_reached_by_plays_of_their_own_alone(
    tmp_path: Path, limit: tuple[str, ...], told: set[str], deployed: set[str]
) -> None:
    plays = PLAYBOOK.replace("missing]}", "missing], __run_tells: [nodes]}")
    of_others = plays[plays.index("- name: Second") :].replace(
        "  gather_facts", "  vars: {__run_of_others: true}\n  gather_facts"
    )
    (tmp_path / "play.yml").write_text(plays + of_others.replace("Second", "Others"))
    (tmp_path / "hosts.yml").write_text(HOSTS)
    settings = {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    play = (ANSIBLE_PLAYBOOK, "-i", "hosts.yml", "play.yml", *limit)
    output = passes(*play, cwd=tmp_path, env=os.environ | settings)
    first, second = output.split("PLAY [Others]")
    assert set(re.findall(r"^ok: \[(\w+)\]", first, re.MULTILINE)) == deployed
    assert set(re.findall(r"^ok: \[(\w+)\]", second, re.MULTILINE)) == told


def test_a_pattern_has_nothing_at_which_ansible_splits_it() -> None:
    assert pattern("&", ["gpu1.example.org", "gpu-2"]) == r"&~^(gpu1\.example\.org|gpu\-2)$"
