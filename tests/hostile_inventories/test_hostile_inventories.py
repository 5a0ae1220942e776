"""Hostile and odd inventories: each is accepted or refused as it should be, with its place."""

from __future__ import annotations

import dataclasses

import pytest

from tests.hostile_inventories.cases import ACCEPTED, CASES
from tests.hostile_inventories.sweep import Outcome, outcome

# One of each kind; `--full` judges all of them (0.4 CPU-seconds each).
SHORT = (
    "host 'gpu[3:2]'",
    "host 'gpu[3-9]'",
    "host 'gpu[3-9]' in INI",
    "no slurm_login",
    "node_address '2001:db8::11'",
    "gpus list",
    "slurm_database_port: 9090",
    "slurm_database_port: 7031",
    "slurm_state_save_location: spool/slurm",
    "qos limits: {MaxTRESPerUser: {'gres/gpu:h100': 8}}",
    "qos limits: {MaxTRESPerUser: {'gres/gpu:h100_sxm': 8}}",
    "background lnog [{name: long}] true",
    "background lnog [] true",
    "yaml number as name",
    "yaml unknown tag",
    "loop of itself",
    "fabric True",
)


def test_the_short_ones_are_cases() -> None:
    assert set(SHORT) <= {case.name for case in CASES}
    assert len(CASES) > 500


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", SHORT)
def test_one_of_each_kind(name: str) -> None:
    [case] = [case for case in CASES if case.name == name][:1]
    result = outcome(case)
    assert result.problem == "", result.sentences


@pytest.mark.long
def test_every_case() -> None:
    results = [outcome(case) for case in CASES]
    assert [(r.problem, r.case.name, r.sentences) for r in results if r.problem] == []


def test_the_judge_of_outcomes_notices() -> None:
    case = next(case for case in CASES if case.words != ACCEPTED)
    right = Outcome(case, [f"/x/hosts.yml:3: {case.words}"], 1, "/x")
    for changes, problem in (
        ({}, ""),
        ({"sentences": []}, "wrongly accepted"),
        ({"sentences": [case.words]}, "without a place"),
        ({"sentences": ["/x/a: other"]}, "not in the words"),
        ({"seconds": 21.0}, "took 21 s"),
        ({"case": dataclasses.replace(case, words="")}, "wrongly refused"),
    ):
        found = dataclasses.replace(right, **changes).problem
        assert found.startswith(problem)
        assert bool(found) == bool(problem)
