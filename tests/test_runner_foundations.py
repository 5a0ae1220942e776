"""tests/runner/foundations.py: what `prepare` may leave as the role before left it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runner.foundations import Applied

BELOW = {"scenario_builds_on": ["munge", "slurm"]}


@pytest.fixture
def applied(tmp_path: Path) -> Applied:
    return Applied(tmp_path)


def goes_well(applied: Applied, role: str, **variables: Any) -> list[str]:
    """A role whose steps all pass; what `prepare` applied for it."""
    again = applied.again(role, BELOW | variables)
    applied.note(role, BELOW | variables)
    return again


def test_on_a_bare_node_all_are_applied_and_for_a_role_that_is_alike_none(applied: Applied) -> None:
    assert goes_well(applied, "exporter", exporter_port=1) == ["munge", "slurm"]
    assert goes_well(applied, "health", health_interval=2) == []


def test_what_has_other_variables_is_applied_again(applied: Applied) -> None:
    goes_well(applied, "exporter")
    assert goes_well(applied, "health", slurm_settings={"AuthInfo": "x"}) == ["slurm"]
    assert goes_well(applied, "rest", slurm_settings={"AuthInfo": "x"}) == []
    assert goes_well(applied, "exporter") == ["slurm"]


def test_what_a_template_makes_is_one_scenarios_alone(applied: Applied) -> None:
    of_mine = {"slurm_settings": {"Epilog": "{{ mirror_url }}"}}
    goes_well(applied, "exporter", **of_mine)
    assert goes_well(applied, "exporter", **of_mine) == []
    assert goes_well(applied, "health", **of_mine) == ["slurm"]


def test_what_was_tested_itself_is_applied_again(applied: Applied) -> None:
    goes_well(applied, "exporter")
    applied.again("munge", {})
    applied.note("munge", {})
    assert goes_well(applied, "health") == ["munge"]


def test_after_a_run_that_died_all_that_it_was_to_apply_is_applied(applied: Applied) -> None:
    goes_well(applied, "exporter")
    applied.again("health", BELOW | {"slurm_settings": {}})
    assert goes_well(applied, "exporter") == ["slurm"]
