"""Which ports of each host its roles open, and for whom: what a firewall has to let in.

Read from the roles' meta/ports.yml, for all hosts in one go. Hosts with the same open ports share a
profile, so 1,000 nodes of one kind are worked out once. Who may ask is said by words of the
contract (`peers`), whose addresses are those of the inventory.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean

from cluster import names
from playbooks.plugin_utils.roles import hosts_by_role
from playbooks.plugin_utils.site import Site
from playbooks.plugin_utils.values import expression_reads, value_reads

REPOSITORY = Path(__file__).resolve().parents[2]
ROLES = REPOSITORY / "roles"
PLAYBOOK = REPOSITORY / "playbooks/slurm-cluster.yml"
ENABLED = "firewall_enabled"

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Openings:
    """Plain data: addresses by word, ports by profile, and the profile of each host."""

    peers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ports: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    profiles: Mapping[str, str] = field(default_factory=dict)


def is_open(entry: Entry) -> bool:
    """Whether it is a port that other hosts come to."""
    protocol, address = (str(entry.get(key, "")) for key in ("protocol", "address"))
    return protocol != "unix" and address in {"", "all"}


def openings(
    site: Site,
    groups_of: Mapping[str, Sequence[str]],
    address_of: Mapping[str, str],
    doors: Mapping[str, tuple[str, str]],
    *,
    roles: Path = ROLES,
    playbook: Path = PLAYBOOK,
) -> Openings:
    """What is open where."""
    by_host: dict[str, list[Entry]] = {host: [] for host in site.names}
    for role, hosts in hosts_by_role(site, playbook).items():
        for entry, alike in _entries(site, roles / role, hosts):
            for host in alike:
                by_host[host].append(entry)
    ports: dict[str, list[Entry]] = {}
    profiles: dict[str, str] = {}
    first: dict[tuple[int, ...], str] = {}
    for host, entries in by_host.items():
        # An entry is one object, whichever host it is of.
        name = first.setdefault(tuple(map(id, entries)), host)
        ports.setdefault(name, entries)
        profiles[host] = name
    return Openings(_peers(site, groups_of, address_of, doors), ports, profiles)


def is_wanted(site: Site) -> bool:
    """Whether a host has a firewall."""
    hosts = [host for host in site.names if site.values.defined(host, ENABLED)]
    for alike in site.values.same(hosts, ENABLED).values():
        with contextlib.suppress(AnsibleError, TypeError):  # preflight tells what is no bool
            if bool(boolean(site.values.value(alike[0], ENABLED))):
                return True
    return False


def _peers(
    site: Site,
    groups_of: Mapping[str, Sequence[str]],
    address_of: Mapping[str, str],
    doors: Mapping[str, tuple[str, str]],
) -> dict[str, list[str]]:
    """By word, the addresses of its hosts: those that others reach, and those that Ansible does."""
    peers = {}
    for word, groups in groups_of.items():
        hosts = dict.fromkeys(host for group in groups for host in site.groups.get(group, ()))
        found: dict[str, None] = {}
        for host in hosts:
            for address in (address_of.get(host), doors.get(host, ("", ""))[0]):
                if (
                    address
                    and names.literal_address(address)
                    and not names.address_problem(address)
                ):
                    found[address] = None
        peers[word] = list(found)
    return peers


def _entries(site: Site, role: Path, hosts: Sequence[str]) -> Iterator[tuple[Entry, Sequence[str]]]:
    """Each open port of a role, with the hosts where it is so."""
    written = [entry for entry in site.read(role / "meta/ports.yml") or [] if is_open(entry)]
    if not written:
        return
    low = site.read(role / "defaults/main.yml") or {}
    scope = site.values.within(hosts, low, site.read(role / "vars/main.yml") or {})
    seen: dict[str, Entry] = {}
    by_entry: dict[int, list[str]] = defaultdict(list)
    for number, entry in enumerate(written):
        texts = {key: entry[key] for key in ("port", "from")}
        condition = entry.get("when", True)
        reads = value_reads(texts) | expression_reads(str(condition))
        for token, alike in scope.alike(hosts, ("opening", role.name, number), reads).items():
            variables = scope.variables(alike[0], reads)
            # What only the host could tell is let in: nobody listens where it is not so.
            reach = scope.reach(token)
            asks_host = reach.facts or reach.writes or reach.asks
            if not asks_host and not site.holds(variables, condition):
                continue
            opening: Entry = {
                "port": str(site.render(variables, texts["port"])),
                "protocol": str(entry.get("protocol", "tcp")),
                "from": [str(word) for word in site.render(variables, texts["from"])],
                "role": role.name,
            }
            same = seen.setdefault(repr(opening), opening)
            known = set(by_entry[id(same)])
            by_entry[id(same)] += [host for host in alike if host not in known]
    for opening in seen.values():
        yield opening, by_entry[id(opening)]
