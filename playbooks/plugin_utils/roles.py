"""Which role a playbook gives to which hosts, and what those roles refuse.

Read from the playbooks' and the roles' own files: a role that comes with a `tasks/refuse.yml` is
found without being listed anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REFUSE = "tasks/refuse.yml"
_ASSERT = ("ansible.builtin.assert", "assert")
_INCLUDE = (
    "ansible.builtin.include_role",
    "ansible.builtin.import_role",
    "include_role",
    "import_role",
)
_TASKS = (
    "ansible.builtin.include_tasks",
    "ansible.builtin.import_tasks",
    "include_tasks",
    "import_tasks",
)
_IMPORT = ("ansible.builtin.import_playbook", "import_playbook")
_SECTIONS = ("pre_tasks", "tasks", "post_tasks", "handlers", "block", "rescue", "always")
# An assert with one of these means more than its words.
_MORE = ("loop", "delegate_to", "register", "until", "failed_when", "ignore_errors")

Read = Callable[[Path], Any]  # a YAML file's document


@dataclass(frozen=True, slots=True)
class Assertion:
    """An `assert` of a role, with what it stands in."""

    role: str
    name: str
    that: tuple[str, ...]
    when: tuple[str, ...]
    fail_msg: str
    variables: Mapping[str, Any]


def roles_of(playbook: Path, read: Read) -> Iterator[tuple[str, str]]:
    """(pattern of hosts, role) for each static use of a role, in the order of the playbook."""
    for play in read(playbook) or []:
        imported = next((play[key] for key in _IMPORT if key in play), None)
        if imported is not None:
            yield from roles_of(playbook.parent / str(imported), read)
            continue
        hosts = play.get("hosts", "")
        pattern = ":".join(map(str, hosts)) if isinstance(hosts, list) else str(hosts)
        for role in (*_listed(play.get("roles") or []), *_included(play, playbook.parent, read)):
            yield pattern, role


def _listed(roles: Sequence[Any]) -> Iterator[str]:
    for role in roles:
        yield str(role) if isinstance(role, str) else str(role.get("role") or role.get("name"))


def _included(holder: Mapping[str, Any], folder: Path, read: Read) -> Iterator[str]:
    """The roles in the tasks of a play or a block, and in files of tasks below `folder`."""
    for section in _SECTIONS:
        for task in holder.get(section) or []:
            for key in _INCLUDE:
                # A role that only lends one of its files is not given to the hosts.
                if key in task and not task[key].get("tasks_from"):
                    name = str(task[key].get("name", ""))
                    if name and "{{" not in name:
                        yield name
            yield from _included(task, folder, read)
            for key in _TASKS:
                given = task.get(key) or ""
                name = str(given.get("file", "") if isinstance(given, dict) else given)
                if name and "{{" not in name:
                    file = folder / name
                    yield from _included({"tasks": read(file)}, file.parent, read)


def assertions(role: str, tasks: Any) -> Iterator[Assertion]:
    """The asserts of a role's refuse.yml that can be judged by what they say alone."""
    yield from _assertions(role, tasks, (), {})


def _assertions(
    role: str, tasks: Any, when: tuple[str, ...], variables: Mapping[str, Any]
) -> Iterator[Assertion]:
    for task in tasks or []:
        if any(key in task for key in _MORE) or any(str(key).startswith("with_") for key in task):
            continue
        conditions = (*when, *_list(task.get("when")))
        inner = {**variables, **(task.get("vars") or {})}
        if "block" in task:
            yield from _assertions(role, task["block"], conditions, inner)
        for key in _ASSERT:
            if key in task:
                arguments = task[key]
                yield Assertion(
                    role=role,
                    name=str(task.get("name", "")),
                    that=tuple(_list(arguments.get("that"))),
                    when=conditions,
                    fail_msg=arguments.get("fail_msg") or arguments.get("msg") or "",
                    variables=inner,
                )


def only_asserts(tasks: Any) -> bool:
    """Whether `assertions` sees all that these tasks are."""
    return all(
        not any(key in task for key in _MORE)
        and not any(str(key).startswith("with_") for key in task)
        and not any(key in task for key in ("rescue", "always"))
        and ("block" not in task or only_asserts(task["block"]))
        and ("block" in task or any(key in task for key in _ASSERT))
        for task in tasks or []
    )


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]
