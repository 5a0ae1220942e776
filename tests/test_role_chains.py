"""scripts/role-chains: which roles share a node, and in which order."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import REPOSITORY
from tests.processes import passes, run
from tests.runner import budget, chains

PROGRAM = REPOSITORY / "scripts/role-chains"
FOUNDATION = {
    "munge": frozenset[str](),
    "node_base": frozenset[str](),
    "slurm_database": frozenset({"munge"}),
    "slurm": frozenset({"node_base", "munge", "slurm_database"}),
}


def test_roles_that_build_on_each_other_are_one_chain() -> None:
    assert chains.chains(FOUNDATION) == [["munge", "node_base", "slurm_database", "slurm"]]


def test_a_role_that_stands_alone_has_a_bare_node() -> None:
    planned = chains.chains(FOUNDATION | {"runtime": frozenset()})
    assert planned[1:] == [["runtime"]]


def test_what_builds_on_the_same_roles_follows_on_their_node() -> None:
    on_slurm = {name: frozenset({"slurm"}) for name in ("exporter", "health")}
    (chain,) = chains.chains(FOUNDATION | on_slurm)
    assert chain[4:] == ["exporter", "health"]


def test_a_scenario_with_nodes_of_its_own_shares_none() -> None:
    planned = chains.chains(
        FOUNDATION | {"ha": frozenset({"slurm"})}, alone=frozenset({"ha", "slurm"})
    )
    assert planned == [["munge", "slurm_database"], ["ha"], ["slurm"], ["node_base"]]


def test_roles_in_a_circle_are_refused() -> None:
    with pytest.raises(chains.Wrong, match="build on each other: a, b"):
        chains.chains({"a": frozenset({"b"}), "b": frozenset({"a"})})


@settings(suppress_health_check=[HealthCheck.too_slow])  # what else the machine does
@given(st.lists(st.sets(st.integers(0, 24)), max_size=25))
def test_every_role_is_there_once_and_after_those_it_builds_on(below: list[set[int]]) -> None:
    names = [f"role{i:02}" for i in range(len(below))]
    builds_on = {
        name: frozenset(names[j] for j in below[i] if j < i) for i, name in enumerate(names)
    }
    planned = chains.chains(builds_on)
    assert sorted(role for chain in planned for role in chain) == names
    everything = chains.everything_below(builds_on)
    for chain in planned:
        for earlier, later in combinations(chain, 2):
            assert later not in everything[earlier]
    assert [len(chain) for chain in planned] == sorted(map(len, planned), reverse=True)


def test_a_role_that_nothing_tests_is_refused(tmp_path: Path) -> None:
    (tmp_path / "roles/one/tasks").mkdir(parents=True)
    with pytest.raises(chains.Wrong, match="roles/one has no scenario"):
        chains.read(tmp_path)


def test_a_scenario_says_which_roles_its_role_builds_on(tmp_path: Path) -> None:
    scenario = "provisioner: {inventory: {group_vars: {all: {scenario_builds_on: [lower]}}}}"
    for role, text in (("lower", ""), ("upper", scenario)):
        folder = tmp_path / "roles" / role / "molecule/default"
        folder.mkdir(parents=True)
        (folder / "molecule.yml").write_text(text)
    builds_on = {"lower": frozenset[str](), "upper": frozenset({"lower"})}
    assert chains.read(tmp_path) == chains.Scenarios(builds_on)
    upper = tmp_path / "roles/upper/molecule/default/molecule.yml"
    upper.write_text(scenario.replace("[lower]", "[lower], scenario_own_node: true"))
    assert chains.read(tmp_path) == chains.Scenarios(builds_on, alone=frozenset({"upper"}))
    upper.write_text(scenario.replace("[lower]", "[lower], scenario_long: it takes an hour"))
    assert chains.read(tmp_path) == chains.Scenarios(builds_on, long=frozenset({"upper"}))
    upper.write_text(scenario.replace("lower", "lowre"))
    with pytest.raises(chains.Wrong, match=r"upper/molecule/default/molecule.yml: .* role lowre"):
        chains.read(tmp_path)


@pytest.mark.parametrize(
    ("nodes", "alone"),
    [
        ("--single=node --gpus=2", False),
        ("--single=node --gpus=2 --nvml", False),
        ("--single=node", True),
        ("--compute=1 --gpus=2", True),
        ("--single=node --gpus=2 --nvml faults", True),
    ],
)
def test_only_a_scenario_with_other_nodes_than_a_chains_has_its_own(
    nodes: str, alone: bool
) -> None:
    assert chains.needs_own_nodes({"PLUMBLINE_NODES": nodes}) is alone
    assert not chains.needs_own_nodes({})


def test_the_roles_of_this_checkout_can_be_planned() -> None:
    scenarios = chains.read(REPOSITORY)
    assert set(scenarios.builds_on) == {
        path.parts[-4] for path in REPOSITORY.glob("roles/*/molecule/default/molecule.yml")
    }
    assert chains.chains(scenarios.builds_on, scenarios.alone)


def test_what_costs_most_begins_first() -> None:
    cost = {"short": 1.0, "long": 9.0}
    planned = [["short", "short"], ["unknown"], ["long"]]
    assert chains.longest_first(planned, cost) == [["long"], ["unknown"], ["short", "short"]]


def test_a_role_costs_what_it_used_here_and_on_its_node() -> None:
    records = {
        budget.Key("role munge debian13", "control"): 20.0,
        budget.Key("role munge debian13", "nodes"): 5.0,
        budget.Key("unit", "control"): 300.0,
        budget.Key("role munge debian13", "forks"): 70.0,
    }
    assert chains.costs(records) == {"munge": 25.0}


def test_some_roles_have_the_order_that_they_have_among_all() -> None:
    assert passes(sys.executable, PROGRAM, "slurm", "munge") == "munge slurm\n"


def test_a_role_that_is_none_is_refused() -> None:
    done = run(sys.executable, PROGRAM, "mung")
    sentence = "role-chains: there is no role mung with a scenario\n"
    assert (done.returncode, done.stderr) == (1, sentence)
