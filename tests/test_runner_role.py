"""tests/runner: a role on a node of a chain."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.utils.display import Display

from tests.conftest import REPOSITORY
from tests.runner import role

SCENARIO = role.Scenario(
    folder=Path(),
    inventory=Path("/inventory"),
    environment={"PATH": "/usr/bin:/bin", "PLUMBLINE_ON": "mine"}
    | {"MOLECULE_EPHEMERAL_DIRECTORY": "/folder"},
    playbooks={"prepare": "/prepare.yml", "converge": "/converge.yml"},
    playbook_arguments=("--forks=2",),
    sequence=("create", "prepare", "check", "converge", "idempotence", "verify"),
    tests=("test_one.py",),
)


@pytest.fixture(autouse=True)
def _ansible_warns_as_it_does(monkeypatch):
    """What molecule brings along puts a method of its own there, and leaves it."""
    monkeypatch.setattr(Display, "warning", Display.warning)


def test_what_molecule_makes_of_a_role_is_what_its_steps_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOLECULE_PROJECT_DIRECTORY", "")
    monkeypatch.setenv("MOLECULE_EPHEMERAL_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("PLUMBLINE_ON", "mine")
    scenario = role.read("node_health")
    assert set(scenario.sequence) == set(role.commands(scenario, []))
    assert scenario.environment["ANSIBLE_CONFIG"].endswith("/ansible.cfg")
    assert scenario.environment["MOLECULE_PROJECT_DIRECTORY"].endswith("/roles/node_health")
    runs = role.commands(scenario, ["munge"])
    assert runs["create"][-3:] == ["--single=node", "--gpus=2", "--nvml"]
    shared = REPOSITORY / "molecule/shared"
    assert scenario.variables["scenario_builds_on"] == ["node_base", "munge", "slurm"]
    assert '{"scenario_builds_on": ["munge"]}' in runs["prepare"]
    assert Path(runs["prepare"][-1]).resolve() == shared / "prepare_scenario.yml"
    assert Path(runs["converge"][-1]).resolve() == shared / "converge.yml"
    inventories = [word for word in runs["converge"] if word.startswith("--inventory=")]
    assert Path(inventories[-1].partition("=")[2]).resolve() == shared / "inventory/roles.yml"
    assert "--check" in runs["check"]
    assert any("test_node_health" in word for word in runs["verify"])
    variables = (tmp_path / "inventory/group_vars/all").read_text()
    assert "node_health_interval: 10" in variables


def test_a_node_is_that_of_the_chain_unless_a_scenario_asks_for_another():
    _, *arguments = role.nodes(SCENARIO.environment)
    start = ["up", "--name=mine", "--inventory=/folder/inventory", "--os=debian13"]
    assert arguments == [*start, "--single=node", "--gpus=2"]
    other = role.nodes({**SCENARIO.environment, "PLUMBLINE_NODES": "--compute=1"})
    assert other[-1] == "--compute=1"


def test_a_step_that_ends_with_a_failure_is_one():
    with pytest.raises(role.Failed, match="check failed with exit status 3"):
        role.run("check", ["sh", "-c", "exit 3"], SCENARIO)


def test_a_second_converge_that_changes_something_is_a_failure(capfd):
    recap = "node : ok=9 changed={} unreachable=0"
    role.run("converge", ["echo", recap.format(5)], SCENARIO)
    role.run("idempotence", ["echo", recap.format(0)], SCENARIO)
    with pytest.raises(role.Failed, match="the role changed something"):
        role.run("idempotence", ["echo", recap.format(1)], SCENARIO)
    assert recap.format(1) in capfd.readouterr().out
