"""Which role a playbook gives to which hosts, and what those roles refuse.

Read from the playbooks' and the roles' own files: a role that comes with a `tasks/refuse.yml` is
found without being listed anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from playbooks.plugin_utils.site import Site

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
        for role in (*listed(play.get("roles") or []), *_included(play, playbook.parent, read)):
            yield pattern, role


def hosts_by_role(site: Site, playbook: Path) -> Mapping[str, Sequence[str]]:
    """The hosts that take each role of a playbook, in its order."""
    takers: dict[str, dict[str, None]] = {}
    of_pattern: dict[str, list[str]] = {}
    for pattern, role in roles_of(playbook, site.read):
        if pattern not in of_pattern:
            of_pattern[pattern] = site.hosts(pattern)
        takers.setdefault(role, {}).update(dict.fromkeys(of_pattern[pattern]))
    return {role: list(hosts) for role, hosts in takers.items()}


def listed(roles: Sequence[Any]) -> Iterator[str]:
    """The names of what a play has under `roles:`."""
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
                value = task.get(key) or ""
                name = str(value.get("file", "") if isinstance(value, dict) else value)
                if name and "{{" not in name:
                    file = folder / name
                    yield from _included({"tasks": read(file)}, file.parent, read)


def tasks_files(folder: Path) -> list[Path]:
    """The files of tasks of all roles below a folder."""
    return sorted(folder.glob("*/tasks/*.yml"))


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


@dataclass(frozen=True, slots=True)
class Step:
    """A task of a refuse.yml, with what it stands in."""

    number: int
    role: str
    name: str
    action: str
    arguments: Mapping[str, Any]
    when: tuple[Any, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    register: str = ""
    failed_when: tuple[Any, ...] | None = None
    changed_when: tuple[Any, ...] = ()
    no_log: bool = False
    delegate_to: str = ""
    loop: Any = None
    environment: Any = None
    run_once: bool = False
    become: bool | None = None
    check_mode: bool | None = None
    forgives: bool = False  # a failure is for a later step to judge
    waits: bool = False  # so is that the host does not answer


class NotPlainError(Exception):
    """A refuse.yml has something that is more than a step."""


# What does not change what a task refuses.
_SILENT = {"name", "tags", "apply"}
_INHERITED = {"when", "vars", "become", "check_mode", "run_once"}
_STEP = _INHERITED | {"register", "failed_when", "delegate_to", "loop", "loop_control"}
_STEP |= {"environment", "changed_when", "no_log", "ignore_errors", "ignore_unreachable"}


def steps(role: str, file: Path, read: Read) -> list[Step]:
    """The tasks of a refuse.yml, those of files that it imports among them, in their order.

    Raises NotPlainError where a task has a keyword that is not one of these: what Ansible would
    make of it is left to Ansible.
    """
    unnumbered = _steps(role, file, read(file), read)
    return [replace(step, number=number) for number, step in enumerate(unnumbered)]


def _steps(role: str, file: Path, tasks: Any, read: Read) -> Iterator[Step]:
    for task in tasks or []:
        inner: list[Step] | None = None
        if "block" in task:
            inner = list(_steps(role, file, task["block"], read))
        for key in _TASKS:
            if key in task:
                value = task[key]
                name = str(value["file"] if isinstance(value, Mapping) else value)
                path = file.parent / name
                if "{{" in name or not path.is_file():
                    raise NotPlainError(f"{role}: {name}")
                inner = list(_steps(role, path, read(path), read))
        if inner is None:
            yield _step(role, task)
            continue
        if more := set(task) - _SILENT - _INHERITED - {"block", *_TASKS}:
            raise NotPlainError(f"{role}: {', '.join(sorted(more))}")
        for step in inner:
            yield replace(
                step,
                when=(*_list(task.get("when")), *step.when),
                variables={**(task.get("vars") or {}), **step.variables},
                become=task.get("become") if step.become is None else step.become,
                check_mode=task.get("check_mode") if step.check_mode is None else step.check_mode,
                run_once=step.run_once or bool(task.get("run_once")),
            )


def _step(role: str, task: Mapping[str, Any]) -> Step:
    action, *more = [key for key in task if key not in _SILENT | _STEP]
    arguments = task[action] or {}
    plain = [task.get(key) for key in ("become", "check_mode", "run_once")]
    if more or not isinstance(arguments, Mapping) or any(isinstance(value, str) for value in plain):
        raise NotPlainError(f"{role}: {task.get('name', action)}")
    return Step(
        number=0,
        role=role,
        name=str(task.get("name", "")),
        action=str(action),
        arguments=arguments,
        when=tuple(_list(task.get("when"))),
        variables=task.get("vars") or {},
        register=str(task.get("register", "")),
        failed_when=tuple(_list(task["failed_when"])) if "failed_when" in task else None,
        changed_when=tuple(_list(task.get("changed_when"))),
        no_log=bool(task.get("no_log")),
        delegate_to=task.get("delegate_to", ""),
        loop=task.get("loop"),
        environment=task.get("environment"),
        run_once=bool(task.get("run_once")),
        become=task.get("become"),
        check_mode=task.get("check_mode"),
        forgives=bool(task.get("ignore_errors")),
        waits=bool(task.get("ignore_unreachable")),
    )


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]
