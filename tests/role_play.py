"""A fixture of roles' scenarios: runs of the role beside molecule's own, with other variables or
interrupted ones. A scenario has it when its conftest.py imports it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

PLAIN = {"ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Run:
    code: int
    output: str

    @property
    def changed(self) -> int:
        return sum(map(int, re.findall(r"changed=(\d+)", self.output)))


def refused(run: Run, sentence: str) -> None:
    """The run ended with this sentence, and not with a slip of Ansible."""
    assert run.code == 2, run.output
    assert sentence in run.output, run.output


@pytest.fixture
def play(tmp_path):
    """A function that runs tasks on the node, the whole role if none are given."""
    role = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]).name
    whole = [{"ansible.builtin.include_role": {"name": role}}]

    def run(tasks=None, *arguments: str, **variables: object) -> Run:
        playbook = tmp_path / "play.yml"
        head = {"hosts": "all", "become": True, "gather_subset": ["min"], "vars": variables}
        playbook.write_text(json.dumps([head | {"tasks": tasks or whole}]))
        inventory = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
        argv = ["ansible-playbook", "-i", str(inventory), str(playbook), *arguments]
        done = subprocess.run(
            argv, env=os.environ | PLAIN, capture_output=True, text=True, check=False, timeout=300
        )
        return Run(done.returncode, " ".join((done.stdout + done.stderr).split()))

    return run
