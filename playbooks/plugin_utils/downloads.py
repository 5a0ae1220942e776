"""Which tasks of a playbook download something on which hosts, with what arguments.

Read from the files of playbooks and roles, so that what is downloaded is written once: in the task.
A condition that nobody can decide before a host is changed counts as true, as one that reads what
an earlier task registers. An argument must be known: raises UnknownError with the task's name.

A task whose shell or program downloads says what in a variable of its own, DECLARED; so does one
whose arguments are worked out while it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.loader import add_all_plugin_dirs
from ansible.template import trust_as_template

from playbooks.plugin_utils.cluster import reason
from playbooks.plugin_utils.roles import listed, tasks_files
from playbooks.plugin_utils.site import Site
from playbooks.plugin_utils.values import (
    ANY,
    FACTS,
    Reads,
    Values,
    expression_reads,
    value_reads,
)

# The modules that bring something from elsewhere, and the arguments that say what.
MODULES: Mapping[str, tuple[str, ...]] = {
    "distribution_packages": ("name",),
    "exact_packages": ("name", "version"),
    "ansible.builtin.apt": ("name", "deb", "state"),
    "release_file": ("url", "sha256", "dest"),
    "package_sources": ("repositories", "download"),
    "container_images": ("published",),
}
DECLARED = "__downloads"

_BLOCKS = ("block", "rescue", "always")
_SECTIONS = ("pre_tasks", "tasks", "post_tasks")
_IMPORT_PLAYBOOK = "ansible.builtin.import_playbook"
_TASKS = ("ansible.builtin.include_tasks", "ansible.builtin.import_tasks")
_ROLES = ("ansible.builtin.include_role", "ansible.builtin.import_role")
_META = "ansible.builtin.meta"
_SET_FACT = "ansible.builtin.set_fact"
_FILES = re.compile(r"'([a-z0-9_./]+\.yml)'")
_PLACES = 32
_CHANGES_NOTHING = "preflight.yml"
# Of a run that was begun as usual, what Ansible says to each task.
_RUN: Mapping[str, Any] = {
    "ansible_check_mode": False,
    "ansible_skip_tags": [],
    "ansible_run_tags": ["all"],
    "__refuse": "refuse.yml",
}


class UnknownError(Exception):
    """What a task downloads cannot be said beforehand; one sentence."""


@dataclass(frozen=True, slots=True)
class Download:
    """A task that downloads, and what it is told on some hosts."""

    task: str  # role and name
    action: str
    arguments: Mapping[str, Any]
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """What a task stands in."""

    folder: Path  # of its file
    role: Path | None = None
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)

    def with_variables(self, variables: Mapping[str, Any] | None) -> Place:
        if not variables:
            return self
        return Place(self.folder, self.role, self.low, {**self.high, **variables})

    def within(self, folder: Path) -> Place:
        return Place(folder, self.role, self.low, self.high)


def downloads(site: Site, playbook: Path, roles: Path) -> list[Download]:
    """What the playbook's tasks download, in its order. The hosts' facts are known to the site."""
    made = {
        name: trust_as_template("{{ '" + name + "' | only_a_run_knows }}")
        for name in registered(site, roles, playbook.parent)
    }
    walk = _Walk(site, roles, made)
    walk.playbook(playbook)
    return walk.found


def registered(site: Site, roles: Path, playbooks: Path) -> frozenset[str]:
    """The variables that tasks make while they run: nobody knows them before."""
    names: set[str] = set()

    def note(tasks: Any) -> None:
        for task in tasks if isinstance(tasks, list) else []:
            names.update([task["register"]] if "register" in task else [])
            names.update(task.get(_SET_FACT) or {})
            for part in (*_BLOCKS, *_SECTIONS):
                note(task.get(part))

    for file in (*tasks_files(roles), *sorted(playbooks.glob("*.yml"))):
        note(site.read(file))
    for file in sorted((playbooks / "tasks").glob("*.yml")):
        note(site.read(file))
    return frozenset(names)


@dataclass(slots=True)
class _Walk:
    site: Site
    roles: Path
    made: Mapping[str, Any]  # what tasks register, each as what fails whoever reads it
    found: list[Download] = field(default_factory=list)
    # Hosts for which the role of a place has ended.
    ended: set[str] = field(default_factory=set)
    # What was worked out for the places of late, by the variables that a place has.
    places: dict[tuple[int, int], tuple[Place, Values]] = field(default_factory=dict)

    def playbook(self, path: Path) -> None:
        for play in self.site.read(path) or []:
            if _IMPORT_PLAYBOOK in play:
                if play[_IMPORT_PLAYBOOK] != _CHANGES_NOTHING:
                    self.playbook(path.parent / str(play[_IMPORT_PLAYBOOK]))
                continue
            hosts = play.get("hosts", "")
            pattern = ":".join(map(str, hosts)) if isinstance(hosts, list) else str(hosts)
            playing = self.site.hosts(pattern)
            said = dict.fromkeys(("ansible_play_hosts", "ansible_play_hosts_all"), playing)
            high = {**_RUN, **said, "ansible_play_batch": playing, **(play.get("vars") or {})}
            for file in play.get("vars_files") or []:
                high |= self.site.read(path.parent / str(file)) or {}
            high["playbook_dir"] = str(path.parent)
            place = Place(path.parent, high=high)
            for role in listed(play.get("roles") or []):
                self._role(role, "main", place, playing)
            for section in _SECTIONS:
                self._tasks(play.get(section), place, playing)

    def _tasks(self, tasks: Any, place: Place, hosts: Sequence[str]) -> None:
        for task in tasks or []:
            left = [host for host in hosts if host not in self.ended]
            if not left:
                return
            self._task(task, place.with_variables(task.get("vars")), left)

    def _task(self, task: Mapping[str, Any], place: Place, hosts: Sequence[str]) -> None:
        if not self._matters(task) or "never" in (task.get("tags") or []):
            return
        if task.get(_META) == "end_role":
            self.ended.update(self._holding(task, place, hosts, sure=True))
            return
        name = f"{place.role.name if place.role else 'playbooks'}: {task.get('name', '')}"
        for inner, alike in self._looping(task, place, hosts, name):
            going = self._holding(task, inner, alike)
            if not going:
                continue
            for part in _BLOCKS:
                self._tasks(task.get(part), inner, going)
            for key in _TASKS:
                if key in task:
                    self._file(task[key], inner, going, name)
            for key in _ROLES:
                if key in task:
                    role = task[key]
                    for wanted, of in self._values(role["name"], inner, going, name):
                        self._role(str(wanted), str(role.get("tasks_from", "main")), inner, of)
            self._download(task, inner, going, name)

    def _matters(self, task: Mapping[str, Any]) -> bool:
        keys = (*_BLOCKS, *_TASKS, *_ROLES, *MODULES)
        return (
            any(key in task for key in keys)
            or task.get(_META) == "end_role"
            or DECLARED in (task.get("vars") or {})
        )

    def _file(self, value: Any, place: Place, hosts: Sequence[str], name: str) -> None:
        raw = value["file"] if isinstance(value, Mapping) else value
        try:
            wanted = [(str(each), of) for each, of in self._values(raw, place, hosts, name)]
        except UnknownError:
            # One of those that the template names; all of them, as with conditions.
            wanted = [(each, hosts) for each in _FILES.findall(raw)]
            if not wanted:
                raise
        for file, alike in wanted:
            folders = [place.folder, *([place.role / "tasks"] if place.role else [])]
            paths = [folder / file for folder in folders]
            path = next((path for path in paths if path.is_file()), None)
            if path is None:
                raise UnknownError(f"{name}: there is no file {file}.")
            path = path.resolve()
            self._tasks(self.site.read(path), place.within(path.parent), alike)

    def _role(self, name: str, tasks_from: str, place: Place, hosts: Sequence[str]) -> None:
        folder = self.roles / name
        add_all_plugin_dirs(str(folder))
        own = {
            "role_path": str(folder),
            "role_name": name,
            "ansible_search_path": [str(folder), str(folder / "tasks")],
        }
        high = {**(self.site.read(folder / "vars" / "main.yml") or {}), **place.high, **own}
        low = self.site.read(folder / "defaults" / "main.yml") or {}
        before, self.ended = self.ended, set()
        path = folder / "tasks" / f"{tasks_from.removesuffix('.yml')}.yml"
        self._tasks(self.site.read(path), Place(path.parent, folder, low, high), hosts)
        self.ended = before

    # --- conditions, loops and values ---

    def _known(self, place: Place) -> Values:
        key = (id(place.low), id(place.high))
        if key not in self.places:
            if len(self.places) == _PLACES:
                self.places.clear()
            low = {**self.made, **place.low}
            values = self.site.values.within(self.site.names, low, dict(place.high), facts=True)
            self.places[key] = (place, values)  # the place, so that its id stays its own
        return self.places[key][1]

    def _looping(
        self, task: Mapping[str, Any], place: Place, hosts: Sequence[str], name: str
    ) -> Iterator[tuple[Place, Sequence[str]]]:
        if "loop" not in task or DECLARED in (task.get("vars") or {}):
            yield place, hosts
            return
        variable = (task.get("loop_control") or {}).get("loop_var", "item")
        for items, alike in self._values(task["loop"], place, hosts, name):
            for item in items:
                yield place.with_variables({variable: item}), alike

    def _holding(
        self, task: Mapping[str, Any], place: Place, hosts: Sequence[str], *, sure: bool = False
    ) -> list[str]:
        """The hosts for which a task's conditions hold; `sure`: those where that is certain."""
        conditions = task.get("when")
        going = list(hosts)
        if conditions is None:
            return going
        for condition in conditions if isinstance(conditions, list) else [conditions]:
            values = self._known(place)
            reads = expression_reads(str(condition))
            holding = []
            key = ("condition", str(condition))
            for token, alike in values.alike(going, key, reads).items():
                verdict: bool | None = None
                if not (values.reach(token).writes or self._unknown_facts(values, alike[0], reads)):
                    with suppress(AnsibleError):
                        variables = values.variables(alike[0], reads)
                        verdict = self.site.holds(variables, condition)
                if verdict or (verdict is None and not sure):
                    holding += alike
            going = [host for host in going if host in set(holding)]
        return going

    def _values(
        self, raw: Any, place: Place, hosts: Sequence[str], name: str
    ) -> Iterator[tuple[Any, Sequence[str]]]:
        values = self._known(place)
        reads = value_reads(raw)
        for token, alike in values.alike(hosts, ("value", repr(raw)), reads).items():
            del token
            try:
                value = self.site.render(values.variables(alike[0], reads), raw)
            except AnsibleError as error:
                facts = self._unknown_facts(values, alike[0], reads)
                why = f"only a run knows {', '.join(facts)}" if facts else reason(error)
                raise UnknownError(
                    f"{name}: what it downloads on {alike[0]} cannot be said: {why}."
                ) from None
            yield value, alike

    @staticmethod
    def _unknown_facts(values: Values, host: str, reads: Reads) -> list[str]:
        """The facts that something reads, through whatever variables, and nobody asked for."""
        known = values.hosts[host].get(FACTS) or {}
        facts = [name for name in _all_names(values, host, reads) if name.startswith(f"{FACTS}.")]
        return sorted(name for name in facts if name.partition(".")[2] not in known)

    # --- what is downloaded ---

    def _download(
        self, task: Mapping[str, Any], place: Place, hosts: Sequence[str], name: str
    ) -> None:
        if DECLARED in (task.get("vars") or {}):
            self._find(DECLARED, task["vars"][DECLARED], place, hosts, name)
            return
        for action, words in MODULES.items():
            if action in task and task[action].get("state") != "absent":
                told = {word: task[action][word] for word in words if word in task[action]}
                self._find(action, told, place, hosts, name)

    def _find(self, action: str, told: Any, place: Place, hosts: Sequence[str], name: str) -> None:
        for arguments, alike in self._values(told, place, hosts, name):
            self.found.append(Download(name, action, arguments, tuple(alike)))


def _all_names(values: Values, host: str, reads: Reads) -> set[str]:
    """All that something reads, through the variables that it names."""
    names: set[str] = set()
    left = list(reads.names)
    while left:
        name = left.pop()
        if name in names or name == ANY:
            continue
        names.add(name)
        if name in values.hosts[host]:
            left += values.reads(host, name)
    return names


__all__ = ["DECLARED", "MODULES", "Download", "UnknownError", "downloads"]
