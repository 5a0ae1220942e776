"""What is promised for every role's packages."""

from __future__ import annotations

from pathlib import Path

import yaml

ROLES = Path(__file__).resolve().parents[2]


def tasks_of(path: Path):
    for task in yaml.safe_load(path.read_text(encoding="utf-8")) or []:
        yield task
        for section in ("block", "rescue", "always"):
            yield from task.get(section, [])


def test_every_role_waits_for_the_lock_that_unattended_upgrades_hold():
    found = [
        (path.relative_to(ROLES), task["name"], task["ansible.builtin.apt"])
        for path in sorted(ROLES.glob("*/tasks/*.yml"))
        for task in tasks_of(path)
        if "ansible.builtin.apt" in task
    ]
    assert len(found) >= 4
    assert [entry for entry in found if entry[2].get("lock_timeout") != 600] == []
