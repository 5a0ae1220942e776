"""What a site's inventory says, read once through Ansible's own inventory and variable manager.

Thin: it asks Ansible and hands plain data to the pure functions. Nothing is rendered here but by
`render`, and no host is touched.
"""

from __future__ import annotations

import socket
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible._internal._templating._jinja_bits import AnsibleTemplate, AnsibleTemplateExpression
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible.vars.plugins import get_vars_from_inventory_sources

from cluster.contract import ROOT
from cluster.names import ANSIBLES_OWN, Setting
from playbooks.plugin_utils.values import Values, Variables

RESOLVERS = 32  # names asked for at once; a name server's time-out then costs once, not per host
RESOLVE_SECONDS = 20


class Engine:
    """Ansible's templating, set up once: each set-up finds all filters and tests anew."""

    def __init__(self, loader: DataLoader) -> None:
        self._templar = Templar(loader=loader)
        _compile_once(self._templar._engine)

    def render(self, variables: Variables, value: Any) -> Any:
        with self._with_variables(variables):
            return self._templar.template(value)

    def holds(self, variables: Variables, condition: Any) -> bool:
        if isinstance(condition, bool):
            return condition
        with self._with_variables(variables):
            return self._templar.evaluate_conditional(trust_as_template(str(condition)))

    @contextmanager
    def _with_variables(self, variables: Variables) -> Iterator[None]:
        """Within another rendering as well: a template may ask for another host's values."""
        before = self._templar.available_variables
        self._templar.available_variables = (
            variables if isinstance(variables, ChainMap) else dict(variables)
        )
        try:
            yield
        finally:
            self._templar.available_variables = before


def _compile_once(engine: Any) -> None:
    """Keeps what templates compile to: Ansible compiles a text for each host anew.

    What a text compiles to depends on it and on its options alone; values are given to it later.
    """
    for name in ("_compile_template", "_compile_expression"):
        setattr(engine, name, _once(getattr(engine, name)))


def _once(compile_: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    kept: dict[tuple[str, Any], Any] = {}

    def compiled(text: str, options: Any) -> Any:
        key = (str(text), options)
        if key not in kept:
            what = compile_(text, options)
            if not isinstance(what, (AnsibleTemplate, AnsibleTemplateExpression)):
                return what  # of an error, which says where this text is written
            kept[key] = what
        return kept[key]

    return compiled


class OtherHosts(Mapping[str, Any]):
    """What templates know as `hostvars`; values of hosts of the cluster are worked out once."""

    def __init__(self, hostvars: Mapping[str, Any]) -> None:
        self.ansibles = hostvars
        self.cluster: Values  # which read this themselves

    def __getitem__(self, host: str) -> Any:
        return OneHost(self.cluster, host) if host in self.cluster.hosts else self.ansibles[host]

    def __contains__(self, host: object) -> bool:
        return host in self.ansibles  # also `localhost`, which is among none

    def __iter__(self) -> Iterator[str]:
        return iter(self.ansibles)

    def __len__(self) -> int:
        return len(self.ansibles)


@dataclass(frozen=True, slots=True)
class OneHost(Mapping[str, Any]):
    """The values of one host's variables."""

    cluster: Values = field(repr=False)
    host: str

    def __getitem__(self, name: str) -> Any:
        return self.cluster.value(self.host, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.cluster.hosts[self.host])

    def __len__(self) -> int:
        return len(self.cluster.hosts[self.host])


@dataclass(frozen=True)
class Site:
    """The inventory as it is: groups, names, and each cluster host's raw variables."""

    groups: Mapping[str, Sequence[str]]
    names: Sequence[str]  # of the hosts in slurm_cluster, in the inventory's order
    values: Values
    sources: Sequence[str]
    manager: Any = field(repr=False)  # Ansible's inventory manager
    loader: Any = field(repr=False)  # Ansible's reader of files
    engine: Engine = field(repr=False)

    def render(self, variables: Variables, value: Any) -> Any:
        return self.engine.render(variables, value)

    def holds(self, variables: Variables, condition: Any) -> bool:
        """Whether a `when` or `that` holds."""
        return self.engine.holds(variables, condition)

    def hosts(self, pattern: str) -> list[str]:
        """The hosts of a play, whatever --limit says."""
        chosen = self.manager.get_hosts(pattern, ignore_limits=True, ignore_restrictions=True)
        known = self.values.hosts
        return [host.name for host in chosen if host.name in known]

    def known_hosts(self) -> frozenset[str]:
        return frozenset(self.manager.hosts)

    def read(self, path: Path) -> Any:
        """A YAML file of ours, its templates trusted; None when there is none."""
        if not path.exists():
            return None
        # `unsafe` spares the copies that Ansible hands out, a fifth of preflight: we change none.
        return self.loader.load_from_file(
            str(path), cache="all", unsafe=True, trusted_as_template=True
        )

    def owners(self, host: str) -> frozenset[str]:
        """The host and its groups: whose files of variables are for it."""
        groups = self.manager.get_host(host).get_groups()
        return frozenset((host, *(group.name for group in groups)))

    def folders(self) -> list[Path]:
        """The folders beside which group_vars and host_vars may lie."""
        return list(dict.fromkeys(folder_of(source) for source in source_paths(self.sources)))

    def settings(self, names: Iterable[str]) -> list[tuple[str, list[str], list[Setting]]]:
        """For each variable and each distinct set of groups: its hosts, and the groups that set it.

        Hosts that set it themselves are left out: they are not in doubt.
        """
        wanted = list(names)
        by_groups: dict[tuple[str, ...], list[str]] = {}
        for name in self.names:
            of = self.manager.get_host(name).get_groups()
            by_groups.setdefault(tuple(sorted(group.name for group in of)), []).append(name)
        values_of = {
            group: self._group_settings(group, wanted)
            for group in {group for groups in by_groups for group in groups} - ANSIBLES_OWN
        }
        rows = []
        for groups, hosts in by_groups.items():
            for variable in wanted:
                settings = [
                    values_of[g][variable] for g in groups if variable in values_of.get(g, {})
                ]
                undecided = hosts
                if len(settings) > 1:
                    undecided = [host for host in hosts if not self._says_itself(host, variable)]
                if len(settings) > 1 and undecided:
                    rows.append((variable, undecided, settings))
        return rows

    def _group_settings(self, name: str, variables: Sequence[str]) -> dict[str, Setting]:
        group = self.manager.groups[name]
        inline = group.get_vars()
        beside = get_vars_from_inventory_sources(
            self.loader, self.manager._sources, [group], "task"
        )
        return {
            variable: Setting(
                group=name,
                rank=(int(variable in beside), group.depth, group.priority),
                value=repr(beside.get(variable, inline.get(variable))),
            )
            for variable in variables
            if variable in beside or variable in inline
        }

    def _says_itself(self, name: str, variable: str) -> bool:
        host = self.manager.get_host(name)
        if variable in host.vars:
            return True
        return variable in get_vars_from_inventory_sources(
            self.loader, self.manager._sources, [host], "task"
        )


def read_site(hostvars: Any) -> Site:
    """Everything about the inventory, from the `hostvars` of any task, or of a template here."""
    if isinstance(hostvars, OtherHosts):
        hostvars = hostvars.ansibles
    manager, variable_manager = hostvars._inventory, hostvars._variable_manager
    loader = hostvars._loader
    groups = manager.get_groups_dict()
    names = [str(name) for name in groups.get(ROOT, [])]
    others = OtherHosts(hostvars)
    raw = {
        name: variable_manager.get_vars(host=manager.get_host(name), include_hostvars=False)
        | {"hostvars": others}
        for name in names
    }
    engine = Engine(loader)
    others.cluster = Values(raw, engine.render)
    return Site(
        groups={str(name): [str(host) for host in hosts] for name, hosts in groups.items()},
        names=names,
        values=others.cluster,
        sources=[str(source) for source in manager._sources],
        manager=manager,
        loader=loader,
        engine=engine,
    )


def source_paths(sources: Iterable[str]) -> list[Path]:
    """The inventory's sources that are files or folders, not lists of hosts such as `a,b`."""
    return [Path(source) for source in sources if "," not in source or Path(source).exists()]


def folder_of(source: Path) -> Path:
    return source if source.is_dir() else source.parent


def resolve(names: Iterable[str]) -> dict[str, str]:
    """The IP address of each name that this machine can resolve, many asked for at once.

    A name server that is away costs some seconds for each name. Where none has been resolved after
    RESOLVE_SECONDS, the other names are not asked for.
    """

    def ask(name: str) -> tuple[str, str]:
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return name, ""
        # The daemons listen on IPv4.
        of_four = [answer for answer in answers if answer[0] == socket.AF_INET]
        return name, str((of_four or answers)[0][4][0])

    wanted = sorted(set(names))
    if not wanted:
        return {}
    resolved: dict[str, str] = {}
    deadline = time.monotonic() + RESOLVE_SECONDS
    with ThreadPoolExecutor(max_workers=min(RESOLVERS, len(wanted))) as pool:
        for begin in range(0, len(wanted), RESOLVERS):
            answers = pool.map(ask, wanted[begin : begin + RESOLVERS])
            resolved |= {name: address for name, address in answers if address}
            if not resolved and time.monotonic() > deadline:
                break
    return resolved
