"""When the role changes packages, and which nodes must leave service for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gpu_packages import evaluated

TASKS = Path(__file__).resolve().parents[1] / "tasks"


def task(file: str, name: str) -> dict[str, Any]:
    tasks = yaml.safe_load((TASKS / file).read_text(encoding="utf-8"))
    found: dict[str, Any] = next(task for task in tasks if task["name"] == name)
    return found


@pytest.mark.parametrize(
    ("change", "others", "leaves", "installs"),
    [
        ([], [], False, False),
        (["libcuda1"], [], True, True),
        # What is only removed is asked of no archive, in no version.
        ([], ["nvidia-kernel-dkms"], True, False),
        (["libcuda1"], ["nvidia-kernel-dkms"], True, True),
    ],
)
def test_a_node_that_only_has_to_lose_packages_leaves_service_too(
    change: list[str], others: list[str], leaves: bool, installs: bool
) -> None:
    state = {"change": change, "others": others}
    facts = task("look.yml", "Look | Record what changes and whether a reboot is due")
    expression = facts["ansible.builtin.set_fact"]["__nvidia_driver_change"]
    assert evaluated(expression, {"__nvidia_driver_look": {"state": state}}, {}) is leaves
    condition = task("install.yml", "Install | Change the driver's packages")["when"][0]
    variables = {"__nvidia_driver_state": state, "__nvidia_driver_change": leaves}
    assert evaluated(f"{{{{ {condition} }}}}", variables, {}) is installs
