"""scripts/role-chains: which roles share a node, and in which order."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import REPOSITORY, load_script

FOUNDATION = {
    "munge": frozenset[str](),
    "node_base": frozenset[str](),
    "slurm_database": frozenset({"munge"}),
    "slurm": frozenset({"node_base", "munge", "slurm_database"}),
}


@pytest.fixture(scope="module")
def role_chains() -> ModuleType:
    return load_script("role-chains")


def test_roles_that_build_on_each_other_are_one_chain(role_chains: ModuleType) -> None:
    assert role_chains.chains(FOUNDATION) == [["munge", "node_base", "slurm_database", "slurm"]]


def test_a_role_that_stands_alone_has_a_bare_node(role_chains: ModuleType) -> None:
    planned = role_chains.chains(FOUNDATION | {"runtime": frozenset()})
    assert planned[1:] == [["runtime"]]


def test_what_builds_on_the_same_roles_follows_on_their_node(role_chains: ModuleType) -> None:
    on_slurm = {name: frozenset({"slurm"}) for name in ("exporter", "health")}
    (chain,) = role_chains.chains(FOUNDATION | on_slurm)
    assert chain[4:] == ["exporter", "health"]


def test_a_scenario_with_nodes_of_its_own_shares_none(role_chains: ModuleType) -> None:
    planned = role_chains.chains(
        FOUNDATION | {"ha": frozenset({"slurm"})}, alone=frozenset({"ha", "slurm"})
    )
    assert planned == [["munge", "slurm_database"], ["ha"], ["slurm"], ["node_base"]]


def test_roles_in_a_circle_are_refused(role_chains: ModuleType) -> None:
    with pytest.raises(role_chains.Wrong, match="build on each other: a, b"):
        role_chains.chains({"a": frozenset({"b"}), "b": frozenset({"a"})})


@settings(suppress_health_check=[HealthCheck.too_slow])  # what else the machine does
@given(st.lists(st.sets(st.integers(0, 24)), max_size=25))
def test_every_role_is_there_once_and_after_those_it_builds_on(
    role_chains: ModuleType, below: list[set[int]]
) -> None:
    names = [f"role{i:02}" for i in range(len(below))]
    builds_on = {
        name: frozenset(names[j] for j in below[i] if j < i) for i, name in enumerate(names)
    }
    planned = role_chains.chains(builds_on)
    assert sorted(role for chain in planned for role in chain) == names
    everything = role_chains.everything_below(builds_on)
    for chain in planned:
        for earlier, later in combinations(chain, 2):
            assert later not in everything[earlier]
    assert [len(chain) for chain in planned] == sorted(map(len, planned), reverse=True)


def test_a_role_that_nothing_tests_is_refused(role_chains: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "roles/one/tasks").mkdir(parents=True)
    with pytest.raises(role_chains.Wrong, match="roles/one has no scenario"):
        role_chains.read(tmp_path)


def test_the_roles_of_this_checkout_can_be_planned(role_chains: ModuleType) -> None:
    builds_on, alone = role_chains.read(REPOSITORY)
    assert set(builds_on) == {
        path.parts[-4] for path in REPOSITORY.glob("roles/*/molecule/default/molecule.yml")
    }
    assert role_chains.chains(builds_on, alone)
