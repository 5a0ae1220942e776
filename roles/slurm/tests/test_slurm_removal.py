"""tasks/removal.yml itself, against a Slurm of shell scripts with its nodes and jobs in files."""

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests import ansible_processes

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOK = """---
- name: Removal
  hosts: ctl1
  gather_facts: false
  tasks:
    - name: Drain, wait
      ansible.builtin.include_role:
        name: slurm
        tasks_from: removal.yml
"""
SCONTROL = """
case "$*" in
  *node) while read -r name state reason; do
           echo "NodeName=$name CPUs=2 State=$state Weight=1 ${reason:+Reason=$reason}"
         done <nodes ;;
  update*)
    echo "$*" >>updates
    for word; do case $word in nodename=*) names=${word#*=} ;; esac; done
    case "$*" in
      *state=drain*) state=IDLE+DRAIN ;;
      *state=down*) state=DOWN+DRAIN; : >jobs ;;
    esac
    for name in $(echo "$names" | tr , ' '); do
      sed -i "s/^$name .*/$name $state leaves the cluster [root@2026]/" nodes
    done ;;
esac
"""
SCANCEL = """
echo "$*" >>cancelled
for word; do case $word in -*) ;; *) sed -i "/^$word[_|]/d" jobs ;; esac; done
"""


@dataclass(frozen=True)
class Slurm:
    """Nodes `NAME STATE REASON`, jobs as squeue prints them."""

    folder: Path

    def recorded(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def has(self, *nodes: str, jobs: str = "") -> None:
        (self.folder / "nodes").write_text("".join(f"{node}\n" for node in nodes))
        (self.folder / "jobs").write_text(jobs)

    def remove(self, *arguments: str) -> tuple[int, str, int]:
        """Exit status, output with its lines as one, number of changes."""
        role = yaml.safe_load((ROOT / "roles/slurm/vars/main.yml").read_text())
        question = role["__slurm_read_leaving"].replace("/etc/slurm", str(self.folder))
        variables = {
            "__slurm_read_leaving": question,
            "slurm_nodes": [{"name": "gpu1"}],
            "slurm_roles": ["controller"],
            "ansible_python_interpreter": sys.executable,
        }
        command = [
            "play.yml",
            "-i",
            "ctl1,",
            "-c",
            "local",
            "-e",
            json.dumps(variables),
            *arguments,
        ]
        environ = os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        environ |= {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        run = ansible_processes.run(*command, cwd=self.folder, env=environ)
        changed = re.search(r"^ctl1 .*changed=(\d+)", run.stdout, re.MULTILINE)
        assert changed, run.stdout + run.stderr
        return run.returncode, " ".join(run.stdout.split()), int(changed[1])


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    for name, script in (("scontrol", SCONTROL), ("squeue", "cat jobs"), ("scancel", SCANCEL)):
        (tmp_path / name).write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "nodes.conf").write_text("NodeName=gpu[1-3] NodeAddr=x\n")
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    return Slurm(tmp_path)


@pytest.mark.long
def test_an_idle_node_is_drained_and_a_second_run_changes_nothing(slurm):
    slurm.has("gpu1 IDLE", "gpu2 IDLE", "gpu3 IDLE+DRAIN bad fan [ops@2026]")
    code, output, changed = slurm.remove("--check")
    assert (code, slurm.recorded("updates")) == (0, ""), output
    assert "These nodes leave: gpu[2-3]." in output
    code, output, changed = slurm.remove()
    assert (code, changed) == (0, 1), output
    assert slurm.recorded("updates").startswith("update nodename=gpu2 state=drain")
    code, output, changed = slurm.remove()
    assert (code, changed) == (0, 0), output


def test_where_none_leaves_nothing_is_done(slurm):
    slurm.has("gpu1 IDLE", jobs="7|R|ops|gpu1|\n")
    code, output, changed = slurm.remove()
    assert (code, changed) == (0, 0), output
    assert "No node leaves" in output


@pytest.mark.long
@pytest.mark.heavy("plays the tasks three times")
def test_a_job_refuses_it_or_is_waited_for_or_ended(slurm):
    slurm.has("gpu1 IDLE", "gpu2 MIXED", jobs="7_1|R|ops|gpu2|\n8_[2-9%3]|PD|eve||gpu2\n")
    code, output, changed = slurm.remove()
    assert (code != 0, changed) == (True, 0), output
    assert "job 7_1 (ops) runs there; wait" in output
    assert slurm.recorded("updates") == ""

    slurm.has("gpu1 IDLE", "gpu2 MIXED", jobs="7_1|R|ops|gpu2|\n")
    code, output, changed = slurm.remove("-e", "slurm_removal_wait=4")
    assert (code != 0, changed) == (True, 1), output
    assert "gpu2 cannot leave yet: job 7_1 (ops) runs there." in output
    assert "run the same command again" in output

    slurm.has("gpu1 IDLE", "gpu2 MIXED", jobs="7_1|R|ops|gpu2|\n8_[2-9%3]|PD|eve||gpu2\n")
    code, output, changed = slurm.remove("-e", "slurm_removal_cancel_jobs=true")
    assert code == 0, output
    assert slurm.recorded("cancelled").splitlines() == ["--state=PENDING 8", "7_1"]


def test_a_dead_node_with_a_job_is_given_up_when_jobs_may_end(slurm):
    slurm.has("gpu1 IDLE", "gpu2 ALLOCATED+DRAIN+NOT_RESPONDING x", jobs="7|CG|ops|gpu2|\n")
    code, output, _ = slurm.remove("-e", "slurm_removal_cancel_jobs=true")
    assert code == 0, output
    assert "nodename=gpu2 state=down" in slurm.recorded("updates")
