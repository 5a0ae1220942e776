"""Ports of the daemons that roles bring to a host: two of them cannot listen on one.

Read from the roles' own meta/ports.yml. Only where a site set one of the ports: ours are apart.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError

from cluster.hostlist import listed
from cluster.refusal import Refusal
from playbooks.plugin_utils.origin import comes_from
from playbooks.plugin_utils.site import Site
from playbooks.plugin_utils.values import expression_reads, value_reads

Entry = Mapping[str, Any]
FIRST, LAST = 1, 65535


def range_problem(value: object) -> str:
    """Why a number is no port; "" where it is one, or no number."""
    if isinstance(value, int) and not FIRST <= value <= LAST:
        return f"is {value}; set a port from {FIRST} to {LAST}."
    return ""


def port_refusals(
    site: Site, takers: Mapping[str, Sequence[str]], folder: Path, ours: Path
) -> Iterator[Refusal]:
    """Daemons of two roles that would listen on one port of one host."""
    entries = {role: site.read(folder / role / "meta" / "ports.yml") or [] for role in takers}
    reads = {name for of in entries.values() for e in of for name in value_reads(e["port"]).names}
    if not any(_is_set(site, name, ours) for name in reads):
        return
    by_host: dict[str, dict[int, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for role, hosts in takers.items():
        for entry, port, alike in _listening(site, folder / role, entries[role], hosts):
            for host in alike:
                by_host[host][port][_process(entry)] = _said(entry)
    twice: dict[str, list[str]] = defaultdict(list)
    for host, ports in by_host.items():
        for port, daemons in ports.items():
            if len(daemons) > 1:
                (one, its), (other, others) = list(daemons.items())[:2]
                names = " or ".join(dict.fromkeys(name for name in (its, others) if name))
                both = f"{one} and {other} would both listen on port {port}; set {names}"
                twice[both].append(host)
    for sentence, hosts in twice.items():
        yield Refusal(f"{sentence} to another port (on {listed(hosts)}).")


def _listening(
    site: Site, role: Path, entries: Sequence[Entry], hosts: Sequence[str]
) -> Iterator[tuple[Entry, int, Sequence[str]]]:
    """What is known to listen without asking a host: the entry, its TCP port, the hosts."""
    low = site.read(role / "defaults" / "main.yml") or {}
    scope = site.values.within(hosts, low, site.read(role / "vars" / "main.yml") or {})
    for number, entry in enumerate(entries):
        if entry.get("protocol", "tcp") != "tcp":
            continue
        when = entry.get("when", True)
        reads = value_reads(f"{entry['port']} {{{{ {when} }}}}")
        for token, alike in scope.alike(hosts, (role.name, number), reads).items():
            if not scope.reach(token).known:
                continue
            variables = scope.variables(alike[0], reads)
            with contextlib.suppress(AnsibleError):
                if site.holds(variables, when):
                    listens = str(site.render(variables, entry["port"]))
                    if listens.isdigit():
                        yield entry, int(listens), alike


def _process(entry: Entry) -> str:
    process = entry["process"]
    return str(process[0] if isinstance(process, list) else process)


def _said(entry: Entry) -> str:
    """The variable that says an entry's port; "" where it is fixed."""
    written = str(entry["port"])
    names = expression_reads(written.strip("{} ")).names
    if not names or "{{" not in written:
        return ""
    key = re.search(rf"\b{min(names)}\.\w+", written)  # of a mapping
    return key[0] if key else min(names)


def _is_set(site: Site, name: str, ours: Path) -> bool:
    return any(
        name in raw and not comes_from(raw[name], ours) for raw in site.values.hosts.values()
    )
