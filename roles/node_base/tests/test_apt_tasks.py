"""What is promised for every role's packages."""

from pathlib import Path

import yaml

ROLES = Path(__file__).resolve().parents[2]
# Of libyaml where there is one: it reads the tasks of all roles in a tenth of the time.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def tasks_of(path: Path):
    for task in yaml.load(path.read_text(encoding="utf-8"), LOADER) or []:
        yield task
        for section in ("block", "rescue", "always"):
            yield from task.get(section, [])


TASKS = [
    (path.relative_to(ROLES), task)
    for path in sorted(ROLES.glob("*/tasks/*.yml"))
    for task in tasks_of(path)
]


APT = [(path, task["ansible.builtin.apt"]) for path, task in TASKS if "ansible.builtin.apt" in task]


def test_packages_are_installed_in_one_way():
    """With its patience, and without daemons that start too early: see distribution_packages."""
    assert len([path for path, task in TASKS if "distribution_packages" in task]) >= 5
    install = [(path, apt) for path, apt in APT if "name" in apt and apt.get("state") != "absent"]
    # Packages in one version, which are held: dpkg's answer alone says nothing of those.
    assert [path for path, apt in install if not apt.get("allow_change_held_packages")] == []
    assert [path for path, apt in install if apt.get("policy_rc_d") != 101] == []


def test_every_role_waits_for_the_lock_that_unattended_upgrades_hold():
    assert APT
    assert [path for path, apt in APT if apt.get("lock_timeout") != 600] == []
