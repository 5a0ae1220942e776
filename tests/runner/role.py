"""Tests a role on a node that others were on before it and come after it: the node stays.

    python3 -m tests.runner.role ROLE

The steps of .config/molecule/chain.yml with molecule's configuration, but not with a molecule for
each of them: that asks Ansible for its version before every playbook, and starts the node with one.
PLUMBLINE_ON names the node; scripts/test-role sets that and the rest of the environment.

Of the roles below it `prepare` applies again only those for which this role has other variables
than the role before it, or that were tested themselves meanwhile (tests/runner/foundations.py).

Exit status: 0 all steps passed, 1 one did not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import ansible_processes
from tests.runner import chains, foundations

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = REPOSITORY / ".config/molecule"
VIRTUAL_CLUSTER = REPOSITORY / "scripts/virtual-cluster"
PLAYBOOK = "ansible-playbook"

# What molecule leaves out, in converge and when it converges again.
SKIPPED = "molecule-notest,notest"
SKIPPED_AGAIN = f"{SKIPPED},molecule-idempotence-notest"
CHANGED = re.compile(r"\bchanged=[1-9]")


class Failed(Exception):
    """A step that did not pass; one sentence."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What molecule makes of a role's molecule.yml and of .config/molecule."""

    folder: Path
    inventory: Path
    environment: Mapping[str, str]
    playbooks: Mapping[str, str]
    playbook_arguments: tuple[str, ...]
    sequence: tuple[str, ...]
    tests: tuple[str, ...]
    variables: Mapping[str, Any] = field(default_factory=dict)

    def playbook(self, name: str, *options: str, skipped: str = SKIPPED) -> list[str]:
        inventory = f"--inventory={self.inventory}"
        wanted = [inventory, f"--skip-tags={skipped}", *options, *self.playbook_arguments]
        return [PLAYBOOK, *wanted, self.playbooks[name]]


def read(role: str) -> Scenario:
    """The scenario `default` of a role, with its variables written to the node's inventory."""
    from molecule.config import Config  # noqa: PLC0415 - heavy, and unit tests need it not

    folder = REPOSITORY / "roles" / role
    os.chdir(folder)
    os.environ["MOLECULE_PROJECT_DIRECTORY"] = str(folder)
    config = Config(
        str(folder / "molecule/default/molecule.yml"),
        args={"base_config": [str(CONFIG / "config.yml"), str(CONFIG / "chain.yml")]},
        command_args={"subcommand": "test"},
    )
    provisioner = config.provisioner
    assert provisioner is not None
    config.write()
    provisioner.write_config()
    provisioner.manage_inventory()
    playbooks = provisioner.playbooks
    variables: Any = provisioner.group_vars.get("all", {})
    return Scenario(
        folder=Path(config.scenario.directory),
        inventory=Path(provisioner.inventory_directory),
        environment=dict(provisioner.env),
        playbooks={"prepare": str(playbooks.prepare), "converge": str(playbooks.converge)},
        playbook_arguments=tuple(provisioner.ansible_args),
        sequence=tuple(config.scenario.test_sequence),
        tests=tuple(map(str, sorted((folder / "molecule/default/tests").rglob("test_*.py")))),
        variables=variables,
    )


def nodes(environment: Mapping[str, str]) -> list[str]:
    """As molecule/shared/create.yml starts them."""
    wanted = environment.get("PLUMBLINE_NODES") or chains.NODES
    return [
        str(VIRTUAL_CLUSTER),
        "up",
        f"--name={environment['PLUMBLINE_ON']}",
        f"--inventory={environment['MOLECULE_EPHEMERAL_DIRECTORY']}/inventory",
        f"--os={environment.get('PLUMBLINE_OS') or 'debian13'}",
        *shlex.split(wanted),
    ]


def commands(scenario: Scenario, below: Sequence[str]) -> dict[str, list[str]]:
    """What each step runs; `prepare` applies the roles below that are named."""
    below_again = ("--extra-vars", json.dumps({"scenario_builds_on": list(below)}))
    connection = [f"--ansible-inventory={scenario.inventory}", "--connection=ansible"]
    return {
        "create": nodes(scenario.environment),
        "prepare": scenario.playbook("prepare", *below_again),
        "check": scenario.playbook("converge", "--check"),
        "converge": scenario.playbook("converge"),
        "idempotence": scenario.playbook("converge", skipped=SKIPPED_AGAIN),
        "verify": ["pytest", *connection, "-p", "no:cacheprovider", "-v", *scenario.tests],
    }


def run(step: str, command: Sequence[str], scenario: Scenario) -> None:
    """One step; its output passes through, when it has ended where it is read here.

    To a file and not through a pipe: connections that Ansible leaves open hold that for minutes.
    """
    print(f"\n=== {step}: {shlex.join(command)}", flush=True)
    begin = time.monotonic()
    text = ""
    with tempfile.TemporaryDirectory(prefix="plumbline-step-") as folder:
        output = Path(folder) / "output" if step == "idempotence" else None
        code = status(step, command, scenario, output)
        if output:
            text = output.read_text(encoding="utf-8", errors="replace")
    print(f"{text}=== {step} ended after {time.monotonic() - begin:.0f} s", flush=True)
    if code:
        raise Failed(f"{step} failed with exit status {code}")
    if step == "idempotence" and CHANGED.search(text):
        raise Failed("converged once more, the role changed something: see `changed` above")


def status(step: str, command: Sequence[str], scenario: Scenario, output: Path | None) -> int:
    """The exit status of a step.

    Two servers run the playbooks: the one that converges again, and then for the role's tests, is
    not the one that converged. There, a set has another order.
    """
    folder, environment = scenario.folder, dict(scenario.environment)
    again = environment | ansible_processes.PLAIN
    if command[0] == PLAYBOOK:
        environment = again if step == "idempotence" else environment
        files = (output, output) if output else None
        return ansible_processes.status(command[1:], cwd=folder, env=environment, output=files)
    files_handed: tuple[int, ...] = ()
    if step == "verify":
        variables, files_handed = ansible_processes.handed_on(cwd=folder, env=again)
        environment = environment | variables
    with output.open("wb") if output else nullcontext() as stdout:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=stdout,
            stderr=subprocess.STDOUT if output else None,
            pass_fds=files_handed,
            check=False,
        ).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.runner.role", description=__doc__)
    parser.add_argument("role")
    chosen = parser.parse_args(arguments)
    try:
        scenario = read(chosen.role)
        if not scenario.tests:
            raise Failed("there is no test to run")
        applied = foundations.Applied(Path(scenario.environment["MOLECULE_EPHEMERAL_DIRECTORY"]))
        runs = commands(scenario, applied.again(chosen.role, scenario.variables))
        for step in scenario.sequence:
            run(step, runs[step], scenario)
            if step == "prepare":
                applied.note(chosen.role, scenario.variables)
    except Failed as failed:
        print(f"role {chosen.role}: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
