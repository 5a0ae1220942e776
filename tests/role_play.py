"""Fixtures of roles' scenarios: runs of the role beside molecule's own, with other variables or
interrupted ones.

A run costs some seconds of CPU: cases of which one outcome is asked go into one run together
(`attempts`). Refusals that variables alone decide are no runs at all: tests/test_role_refusals.py.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests import ansible_processes

SHARED_INVENTORY = Path(__file__).resolve().parents[1] / "molecule/shared/inventory/roles.yml"
CHANGED = re.compile(r"\bchanged: \[")


@dataclass(frozen=True)
class Run:
    code: int
    output: str

    @property
    def changed(self) -> int:
        return sum(map(int, re.findall(r"changed=(\d+)", self.output)))


@dataclass(frozen=True)
class Case:
    """The role, or one of its files of tasks, with variables of its own: one of several in a run.

    `breaks` is a command on the node before it, `mends` one after it, whose output is kept;
    `shows` is an expression, whose value is in the output.
    """

    name: str
    variables: Mapping[str, object] = field(default_factory=dict)
    tasks_from: str = "main"
    shows: str = ""
    breaks: str = "true"
    mends: str = "true"


@dataclass(frozen=True)
class Outcome:
    """What came of one case."""

    failed: bool
    output: str
    left: str  # what `mends` said, its blanks as one

    @property
    def changed(self) -> int:
        """How many tasks changed something, or items of a loop; Run counts a loop once."""
        return len(CHANGED.findall(self.output))

    def refuses(self, sentence: str) -> None:
        """It ended with this sentence."""
        assert self.failed, self.output
        assert sentence in self.output, self.output

    def passes(self, *, changed: bool | None = None) -> None:
        """It ended well, and changed something or nothing, where that is asked."""
        assert not self.failed, self.output
        assert changed is None or changed == (self.changed > 0), self.output


def refused(run: Run, sentence: str) -> None:
    """The run ended with this sentence, and not with a slip of Ansible."""
    assert run.code == 2, run.output
    assert sentence in run.output, run.output


def played(folder: Path, tasks=None, *arguments: str, **variables: object) -> Run:
    """Runs tasks on the node, the whole role if none are given; the playbook lies in the folder.

    For fixtures that tests share; a test has `play`.
    """
    whole = [{"ansible.builtin.include_role": {"name": role_name()}}]
    playbook = folder / "play.yml"
    head = {"hosts": "all", "become": True, "gather_subset": ["min"], "vars": variables}
    playbook.write_text(json.dumps([head | {"tasks": tasks or whole}]))
    inventory = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
    inventories = (f"--inventory={path}" for path in (inventory, SHARED_INVENTORY))
    environment = os.environ | ansible_processes.PLAIN
    done = ansible_processes.run(
        *inventories, playbook, *arguments, cwd=Path.cwd(), env=environment, timeout=900
    )
    return Run(done.returncode, " ".join((done.stdout + done.stderr).split()))


def role_name() -> str:
    """The role whose scenario runs."""
    return Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]).name


@pytest.fixture
def play(tmp_path):
    """A function that runs tasks on the node, the whole role if none are given."""
    return partial(played, tmp_path)


@pytest.fixture
def attempts(play):
    """A function that tries several cases in one run; what came of each, by name.

    A case that fails ends itself alone. What a case registers is there in the next one, and a
    handler that it could not reach runs at the very end, so what is to be seen of a run that died
    needs a run of its own.
    """
    role = role_name()

    def run(cases: Sequence[Case], *arguments: str) -> dict[str, Outcome]:
        tasks = [task for case in cases for task in _tasks(role, case)]
        return outcomes(play(tasks, *arguments), cases)

    return run


def outcomes(run: Run, cases: Sequence[Case]) -> dict[str, Outcome]:
    """What came of each case of a run, by name."""
    assert len({case.name for case in cases}) == len(cases), "each case has a name of its own"
    assert run.code == 0, run.output
    # Changes are counted as Ansible prints them; should it print otherwise, there would be none.
    assert (run.changed > 0) == bool(CHANGED.search(run.output)), run.output
    return {case.name: _outcome(run.output, case.name) for case in cases}


def _tasks(role: str, case: Case) -> list[dict[str, object]]:
    def say(what: str) -> dict[str, object]:
        return {"ansible.builtin.debug": {"msg": f"[{case.name}] {what}"}}

    def command(text: str) -> dict[str, object]:
        # A change in Ansible's eyes too: what it knows of the node ends with it.
        return {"ansible.builtin.shell": text, "check_mode": False}

    include = {"name": role, "tasks_from": case.tasks_from}
    show = [{"ansible.builtin.debug": {"msg": f"{{{{ {case.shows} }}}}"}}] if case.shows else []
    return [
        command(case.breaks),
        say("begins"),
        {
            "block": [
                {"ansible.builtin.include_role": include, "vars": dict(case.variables)},
                *show,
                say("passes"),
            ],
            "rescue": [say("fails")],
            "always": [
                command(case.mends) | {"register": "of_the_case"},
                say("left {{ of_the_case.stdout }} [over]"),
            ],
        },
    ]


def _outcome(output: str, name: str) -> Outcome:
    """Read between the marks that `_tasks` sets."""
    match = re.search(
        rf"\[{re.escape(name)}\] begins(?P<output>.*?)\[{re.escape(name)}\] (?P<end>passes|fails)"
        rf".*?\[{re.escape(name)}\] left (?P<left>.*?) ?\[over\]",
        output,
    )
    assert match, output
    return Outcome(match["end"] == "fails", match["output"], match["left"])
