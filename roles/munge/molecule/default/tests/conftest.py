"""Runs of the role beside molecule's own: other variables, or interrupted ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

PLAIN = {"ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true", "NO_COLOR": "1"}
ROLE = [{"ansible.builtin.include_role": {"name": "munge"}}]


@dataclass(frozen=True)
class Run:
    code: int
    output: str

    @property
    def changed(self) -> int:
        return sum(map(int, re.findall(r"changed=(\d+)", self.output)))


@pytest.fixture
def play(tmp_path):
    """A function that runs tasks on the node, the whole role if none are given."""

    def run(tasks=None, *arguments: str, **variables: object) -> Run:
        playbook = tmp_path / "play.yml"
        head = {"hosts": "all", "become": True, "gather_subset": ["min"], "vars": variables}
        playbook.write_text(json.dumps([head | {"tasks": tasks or ROLE}]))
        inventory = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
        argv = ["ansible-playbook", "-i", str(inventory), str(playbook), *arguments]
        done = subprocess.run(
            argv, env=os.environ | PLAIN, capture_output=True, text=True, check=False, timeout=300
        )
        return Run(done.returncode, " ".join((done.stdout + done.stderr).split()))

    return run
