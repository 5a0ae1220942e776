"""Check mode starts nothing, so it waits for nothing that a task before would have started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY

# Files whose waits check mode may run, and why.
ALLOWED = {
    # The callers include it outside check mode, and playbooks/verify-nodes.yml in any mode.
    "roles/gpu_exporter/tasks/verify_dcgm.yml",
    # It compares files that exist before the run, for five seconds, and fails nothing.
    "roles/slurm/tasks/stale_configuration.yml",
}


def tasks(document: Any) -> Iterator[dict[str, Any]]:
    """Every task of a file, also of its plays and blocks."""
    for entry in document if isinstance(document, list) else []:
        yield entry
        for part in ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always"):
            yield from tasks(entry.get(part))


def waits_in_check_mode(text: str) -> list[str]:
    """Names of the tasks that wait although nothing was started."""
    return [
        task["name"]
        for task in tasks(yaml.safe_load(text))
        if "until" in task and task.get("check_mode") is False
    ]


def test_no_task_waits_in_check_mode() -> None:
    files = [*REPOSITORY.glob("roles/*/tasks/*.yml"), *REPOSITORY.glob("playbooks/**/*.yml")]
    assert len(files) > 200
    waiting = {
        str(file.relative_to(REPOSITORY)) for file in files if waits_in_check_mode(file.read_text())
    }
    assert waiting == ALLOWED


@pytest.mark.parametrize("shape", ["[{0}]", "[{{block: [{0}]}}]", "[{{hosts: all, tasks: [{0}]}}]"])
def test_a_wait_is_found(shape: str) -> None:
    task = "{name: Wait, command: scontrol ping, until: true, check_mode: false}"
    assert waits_in_check_mode(shape.format(task)) == ["Wait"]
    assert waits_in_check_mode(shape.format(task.replace(", check_mode: false", ""))) == []
