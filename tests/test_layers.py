"""The order of the layers, where it is not only that of what builds on what."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.ports import REPOSITORY

BEFORE = [
    "nodes.yml",
    "storage.yml",
    "users.yml",
    "gpu-software.yml",
    "user-software.yml",
    "validation-runtime.yml",
]


def layers(playbook: Path) -> list[str]:
    plays = yaml.safe_load(playbook.read_text(encoding="utf-8"))
    return [play["ansible.builtin.import_playbook"] for play in plays]


def test_a_new_node_gets_jobs_once_what_they_count_on_is_there() -> None:
    """One whose torch came after slurmd was given jobs that could not load it."""
    playbooks = layers(REPOSITORY / "playbooks/slurm-cluster.yml")
    assert [name for name in playbooks if name in BEFORE] == BEFORE
    assert max(map(playbooks.index, BEFORE)) < playbooks.index("slurm.yml")
