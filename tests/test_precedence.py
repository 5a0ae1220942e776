"""A site's word wins: every setting that we ship, at every place where a site may write it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from playbooks.plugin_utils import contract
from playbooks.plugin_utils.variables import read_specs
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
# From the weakest to the strongest, as Ansible orders them and docs/inventory.md says.
PLACES = [
    "vars of all in the inventory file",
    "vars of a group in the inventory file",
    "group_vars/all",
    "group_vars of a group",
    "a host's line",
    "host_vars",
    "-e",
]


def site(folder: Path, *places: str) -> list[str]:
    """Arguments for an inventory in which every setting has the name of its place as value."""
    children = good()
    group = children["slurm_compute"]["children"]["gpu_h100"]
    group["vars"] = {}
    files: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    arguments = ["-i", str(folder)]
    for place in places:
        said = dict.fromkeys(NAMES, place)
        match place:
            case "vars of all in the inventory file":
                rest["vars"] = said
            case "vars of a group in the inventory file":
                group["vars"] = said
            case "group_vars/all":
                files["group_vars/all/site.yml"] = said
            case "group_vars of a group":
                files["group_vars/gpu_h100.yml"] = said
            case "a host's line":
                group["hosts"]["gpu1"] |= said
            case "host_vars":
                files["host_vars/gpu1.yml"] = said
            case "-e":
                (folder / "extra").mkdir(parents=True)
                (folder / "extra" / "vars.yml").write_text(yaml.safe_dump(said))
                arguments += ["-e", f"@{folder}/extra/vars.yml"]
    write(folder / "inventory", children, files, **rest)
    arguments[1] = str(folder / "inventory")
    return arguments


def seen(folder: Path, arguments: list[str]) -> Mapping[str, Any]:
    """What the roles see on gpu1, from a playbook that lies as ours do and has all roles."""
    (folder / "playbooks").mkdir()
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
    out = folder / "seen.json"
    task = {
        "name": "Write down what is seen",
        "tags": ["seen"],
        "delegate_to": "localhost",
        "ansible.builtin.copy": {
            "content": "{{ query('ansible.builtin.vars', *names) | to_json }}",
            "dest": str(out),
            "mode": "0600",
        },
        "vars": {"names": NAMES, "ansible_connection": "local"},
    }
    play = {"hosts": "gpu1", "gather_facts": False, "tasks": [*roles, task]}
    playbook = folder / "playbooks" / "see.yml"
    playbook.write_text(json.dumps([play]))
    done = subprocess.run(
        ["ansible-playbook", str(playbook), "--tags", "seen", *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(zip(NAMES, json.loads(out.read_text()), strict=True))


@pytest.mark.parametrize("place", PLACES)
def test_what_a_site_writes_is_what_a_role_sees(tmp_path: Path, place: str) -> None:
    found = seen(tmp_path, site(tmp_path, place))
    assert {name: value for name, value in found.items() if value != place} == {}


@pytest.mark.parametrize("most", range(2, len(PLACES) + 1))
def test_of_two_places_the_nearer_one_wins(tmp_path: Path, most: int) -> None:
    found = seen(tmp_path, site(tmp_path, *PLACES[most - 2 : most]))
    assert set(found.values()) == {PLACES[most - 1]}


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


def test_no_playbook_sets_what_a_site_may_set() -> None:
    public = set(NAMES)
    found = {(path.name, name) for path, play in plays() for name in variables_of(play)}
    assert {(file, name) for file, name in found if name in public} == set()


def test_no_role_sets_what_a_site_may_set() -> None:
    """vars/ of a role, and what it registers or sets as a fact, are stronger than an inventory."""
    found = {
        (str(path.relative_to(ROLES)), name)
        for path in ROLES.glob("*/vars/**/*.yml")
        for name in yaml.safe_load(path.read_text()) or {}
    }
    for path in ROLES.glob("*/tasks/**/*.yml"):
        tasks = yaml.safe_load(path.read_text()) or []
        found |= {(str(path.relative_to(ROLES)), name) for name in variables_of({"tasks": tasks})}
    assert {(file, name) for file, name in found if name in set(NAMES)} == set()
