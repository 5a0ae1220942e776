"""Which hosts a run is for that has more to tell than --limit names; then real runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from playbooks.callback_plugins.reach import pattern, reached
from playbooks.filter_plugins.preflight_hosts import powered_down
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


@pytest.mark.sample(2)
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


@pytest.mark.sample(1)
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


OFF = """---
- name: First
  hosts: all
  gather_facts: false
  tasks:
    - name: Find who is off
      ansible.builtin.set_fact:
        __run_leaves_out: [gpu1, gpu3]
      run_once: true
- name: Second
  hosts: nodes:controllers
  gather_facts: false
  tasks:
    - name: Ask
      ansible.builtin.ping:
      vars: {ansible_connection: local, ansible_python_interpreter: "{{ ansible_playbook_python }}"}
- name: Third
  hosts: gpu1
  gather_facts: false
  tasks:
    - name: Fail
      ansible.builtin.fail:
"""


def test_hosts_that_a_run_leaves_out_are_in_no_play_that_follows(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(OFF)
    hosts = HOSTS.replace(
        "    nodes:", "    slurm_cluster: {children: {nodes: , controllers: }}\n    nodes:"
    )
    (tmp_path / "hosts.yml").write_text(hosts)
    settings = {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    play = (ANSIBLE_PLAYBOOK, "-i", "hosts.yml", "play.yml")
    output = passes(*play, cwd=tmp_path, env=os.environ | settings)
    second = output[output.index("PLAY [Second]") :]
    assert set(re.findall(r"^ok: \[(\w+)\]", second, re.MULTILINE)) == {"ctl1", "gpu2"}
    assert "Off, by power saving: gpu1, gpu3. A run does them once they are on." in output
    assert "All 2 hosts are done; nothing was changed." in output


def test_slurm_says_who_is_off() -> None:
    states = "gpu1 IDLE+CLOUD+POWERED_DOWN\ngpu2 IDLE\ngpu3 IDLE+POWERING_UP\nx DOWN+POWERED_DOWN"
    assert powered_down(states, ["ctl1", "gpu1", "gpu2", "gpu3"]) == ["gpu1", "gpu3"]
    assert powered_down("", ["gpu1"]) == powered_down("error: no\n", ["gpu1"]) == []
    assert powered_down("gpu1 DOWN+NOT_RESPONDING", ["gpu1"]) == []
