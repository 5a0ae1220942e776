"""A site's word wins: every setting that we ship, at every place where a site may write it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import contract
from playbooks.plugin_utils.variables import read_specs
from tests import ansible_processes
from tests.standins.inventories import REPOSITORY, good, write

ROLES = REPOSITORY / "roles"
SPECS = read_specs(ROLES)


def shipped() -> list[str]:
    """Every variable that a site may set: the roles' options and what group_vars/all sets."""
    names = {name for options in SPECS.values() for name in options}
    for path in (REPOSITORY / "group_vars" / "all").glob("*.yml"):
        names |= set(yaml.safe_load(path.read_text()) or {})
    return sorted(names | set(contract.load().variables))


NAMES = shipped()
# From the weakest to the strongest, as Ansible orders them and docs/reference/inventory.md says.
PLACES = [
    "vars of all in the inventory file",
    "vars of a group in the inventory file",
    "group_vars/all",
    "group_vars of a group",
    "a host's line",
    "host_vars",
    "-e",
]


# What all hosts of a run have in common: one run for the cases between two of them.
SHARED = {"vars of all in the inventory file", "group_vars/all", "-e"}


def site(folder: Path, cases: Mapping[str, Sequence[str]]) -> list[str]:
    """Arguments for an inventory in which every setting has the name of its place as value.

    cases: by host, which is alone in a group, the places where it is written
    """
    children = good()
    groups = children["slurm_compute"]["children"] = {}
    files: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    arguments = ["-i", str(folder / "inventory")]
    for host, places in cases.items():
        group: dict[str, Any] = {"hosts": {host: {}}}
        groups[f"of_{host}"] = group
        for place in places:
            settings = dict.fromkeys(NAMES, place)
            match place:
                case "vars of all in the inventory file":
                    rest["vars"] = settings
                case "vars of a group in the inventory file":
                    group["vars"] = settings
                case "group_vars/all":
                    files["group_vars/all/site.yml"] = settings
                case "group_vars of a group":
                    files[f"group_vars/of_{host}.yml"] = settings
                case "a host's line":
                    group["hosts"][host] |= settings
                case "host_vars":
                    files[f"host_vars/{host}.yml"] = settings
                case "-e":
                    (folder / "extra.yml").write_text(yaml.safe_dump(settings))
                    arguments += ["-e", f"@{folder}/extra.yml"]
    write(folder / "inventory", children, files, **rest)
    return arguments


def values_seen(folder: Path, cases: Mapping[str, Sequence[str]]) -> dict[str, Mapping[str, Any]]:
    """What the roles see on each host, from a playbook that lies as ours do and has all roles."""
    (folder / "playbooks").mkdir(parents=True)
    arguments = site(folder, cases)
    (folder / "playbooks" / "group_vars").symlink_to(REPOSITORY / "group_vars")
    # Their defaults and vars count; nothing of them runs.
    roles = [
        {
            "name": f"Have {role}",
            "ansible.builtin.import_role": {"name": role, "rolespec_validate": False},
            "tags": ["never"],
        }
        for role in SPECS
    ]
    task = {
        "name": "Write down what is seen",
        "tags": ["seen"],
        "delegate_to": "localhost",
        "ansible.builtin.copy": {
            "content": "{{ query('ansible.builtin.vars', *names) | to_json }}",
            "dest": f"{folder}/{{{{ inventory_hostname }}}}.json",
            "mode": "0600",
        },
        "vars": {"names": NAMES, "ansible_connection": "local"},
    }
    play = {"hosts": list(cases), "gather_facts": False, "tasks": [*roles, task]}
    playbook = folder / "playbooks" / "see.yml"
    playbook.write_text(json.dumps([play]))
    done = ansible_processes.run(playbook, "--tags", "seen", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        host: dict(zip(NAMES, json.loads((folder / f"{host}.json").read_text()), strict=True))
        for host in cases
    }


@pytest.mark.long
@pytest.mark.heavy("runs Ansible three times, with all roles and all settings")
def test_of_all_places_the_nearest_wins_and_over_what_we_ship(tmp_path: Path) -> None:
    """One host for each number of places that speak; those with the same of SHARED are one run."""
    runs: dict[frozenset[str], dict[str, Sequence[str]]] = {}
    for number in range(1, len(PLACES) + 1):
        places = PLACES[:number]
        runs.setdefault(frozenset(places) & SHARED, {})[f"gpu{number}"] = places
    wrong = {
        (cases[host][-1], name): value
        for number, cases in enumerate(runs.values())
        for host, values in values_seen(tmp_path / str(number), cases).items()
        for name, value in values.items()
        if value != cases[host][-1]
    }
    assert wrong == {}


# --- what would win over a site ------------------------------------------------------------------


def plays() -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for path in sorted((REPOSITORY / "playbooks").glob("*.yml")):
        for play in yaml.safe_load(path.read_text()) or []:
            yield path, play


def variables_of(holder: Mapping[str, Any]) -> Iterator[str]:
    """Names that a play, a role entry or a task sets by itself."""
    yield from holder.get("vars") or {}
    for role in holder.get("roles") or []:
        if isinstance(role, dict):
            yield from role.get("vars") or {}
            yield from (key for key in role if key in NAMES)
    for section in ("pre_tasks", "tasks", "post_tasks", "handlers", "block", "rescue", "always"):
        for task in holder.get(section) or []:
            yield from variables_of(task)
            for key in ("set_fact", "ansible.builtin.set_fact"):
                yield from task.get(key) or {}


# Playbooks whose purpose is what a site asks for by such a variable.
MEANT = {
    ("rotate-database.yml", "slurm_database_password_rotate"),
    ("rotate-jwt.yml", "slurmrestd_key_rotate"),
    ("rotate-monitoring.yml", "tls_certificate_rotate"),
    ("rotate-munge.yml", "munge_key_rotate"),
}


def test_no_playbook_sets_what_a_site_may_set() -> None:
    public = set(NAMES)
    variables = {(path.name, name) for path, play in plays() for name in variables_of(play)}
    assert {(file, name) for file, name in variables if name in public} == MEANT


def test_no_role_sets_what_a_site_may_set() -> None:
    """vars/ of a role, and what it registers or sets as a fact, are stronger than an inventory."""
    variables = {
        (str(path.relative_to(ROLES)), name)
        for path in ROLES.glob("*/vars/**/*.yml")
        for name in yaml.safe_load(path.read_text()) or {}
    }
    for path in ROLES.glob("*/tasks/**/*.yml"):
        tasks = yaml.safe_load(path.read_text()) or []
        variables |= {
            (str(path.relative_to(ROLES)), name) for name in variables_of({"tasks": tasks})
        }
    assert {(file, name) for file, name in variables if name in set(NAMES)} == set()
