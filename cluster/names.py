"""What is wrong with the groups, names and addresses of an inventory. Pure functions."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.contract import DATABASE, ROOT, Contract
from cluster.hostlist import listed
from cluster.refusal import Refusal

Groups = Mapping[str, Sequence[str]]

ANSIBLES_OWN = frozenset({"all", "ungrouped"})
NODENAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.IGNORECASE)
NAME_LENGTH = 63  # a label in DNS, and what Linux takes as a host's name
_RANGE = re.compile(r"(.*)\[(\d+)-(\d+)\](.*)")
NUMERIC = re.compile(r"[0-9.]+")  # an address that is not whole, and no name of a host
# Slurm's and the resolver's own words.
RESERVED = frozenset({"all", "default", "localhost"})
# Slurm makes lower case of it; 40 characters leave room for its tables' names in MariaDB (64).
CLUSTER_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,38}[a-z0-9])?")
SUFFIXES = ("", ".yml", ".yaml", ".json")  # which Ansible reads in group_vars and host_vars


# --- groups --------------------------------------------------------------------------------------


def group_refusals(groups: Groups, contract: Contract) -> Iterator[Refusal]:
    """Groups of the contract that are missing, empty, outside the cluster or misspelt."""
    foreign = [name for name in groups if name not in contract.groups and name not in ANSIBLES_OWN]
    for name, group in contract.groups.items():
        if not group.needed or groups.get(name):
            continue
        near = difflib.get_close_matches(name, foreign, n=1, cutoff=0.85)
        hint = f"is {near[0]} meant to be it?" if near else "inventory/example has them all."
        if name not in groups:
            yield Refusal(f"there is no group {name} ({group.meaning}); {hint}")
        else:
            hint = hint if near else "put one into it in the inventory."
            yield Refusal(f"group {name} ({group.meaning}) has no host; {hint}")
    if not groups.get(ROOT):
        return
    for name, group in contract.groups.items():
        inside = set(groups.get(group.within, ()))
        if outside := [host for host in groups.get(name, ()) if host not in inside]:
            mend = (
                f"make {name} a child of {ROOT}."
                if group.within == ROOT
                else f"put them into {group.within} as well."
            )
            yield Refusal(
                f"group {name} has hosts that are not in {group.within} ({listed(outside)}); {mend}"
            )
    yield from _misspelt(groups, contract, foreign)
    yield from _without_role(groups, contract)


def _misspelt(groups: Groups, contract: Contract, foreign: Sequence[str]) -> Iterator[Refusal]:
    """Groups that are named almost like one of the contract whose hosts theirs are not."""
    for name in foreign:
        for near in difflib.get_close_matches(name, contract.groups, n=1, cutoff=0.85):
            strangers = [host for host in groups[name] if host not in set(groups.get(near, ()))]
            if strangers:
                yield Refusal(
                    f"group {name} has hosts that are not in {near} ({listed(strangers)}); "
                    f"did you mean {near}?",
                    "group-misspelt",
                    name,
                )


def _without_role(groups: Groups, contract: Contract) -> Iterator[Refusal]:
    """Hosts of the cluster that would get nothing but the base system."""
    roles = [name for name in contract.groups if name != ROOT]
    placed = {host for name in roles for host in groups.get(name, ())}
    idle = [host for host in groups[ROOT] if host not in placed]
    if idle:
        yield Refusal(
            f"{listed(idle)}: in {ROOT}, but in none of its groups, so nothing is deployed there; "
            f"put each host into one of {', '.join(roles)}, or out of {ROOT}.",
            "host-without-role",
        )


def database_refusals(groups: Groups, backup: str) -> Iterator[Refusal]:
    """Databases of which it is not said which one is the backup."""
    hosts = list(groups.get(DATABASE, []))
    if backup and backup not in hosts:
        yield Refusal(
            f"cluster_database_backup is {backup}, which is not in {DATABASE}; "
            f"name the one of its hosts that is the backup."
        )
    elif len(hosts) > 2:
        yield Refusal(
            f"group {DATABASE} has {len(hosts)} hosts ({listed(hosts)}); "
            "slurmdbd has one host and at most one backup."
        )
    elif len(hosts) == 2 and not backup:
        yield Refusal(
            f"group {DATABASE} has two hosts ({', '.join(hosts)}); "
            f"say which one is the backup, as cluster_database_backup: {hosts[1]}."
        )
    elif backup and len(hosts) == 1:
        yield Refusal(
            f"cluster_database_backup is {backup}, which is the only host of {DATABASE}; "
            "add the one that it backs up, or remove cluster_database_backup."
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """A group that sets a variable: what decides whether it wins, and the value as text."""

    group: str
    rank: tuple[int, int, int]  # beside the inventory or in it, depth, ansible_group_priority
    value: str


def hardware_refusals(
    name: str, hosts: Iterable[str], settings: Iterable[Setting]
) -> Iterator[Refusal]:
    """Groups of the same hosts that declare different hardware, where only the alphabet decides."""
    ordered = sorted(settings, key=lambda setting: setting.rank)
    if not ordered:
        return
    top = [setting for setting in ordered if setting.rank == ordered[-1].rank]
    if len({setting.value for setting in top}) > 1:
        of = " and ".join(sorted(setting.group for setting in top))
        yield Refusal(
            f"{listed(hosts)}: the groups {of} set {name} to different values; "
            "set it in one of them, or make one a child of the other.",
            "hardware-twice",
            name,
        )


# --- names ---------------------------------------------------------------------------------------


def _shortened(names: Sequence[str]) -> tuple[str, str]:
    """Full names for a sentence, and how to write them: the short name is the host's."""
    parts = [name.partition(".")[::2] for name in names]
    if not all(NODENAME.fullmatch(short) and domain for short, domain in parts):
        return listed(names), ""
    shorts, domains = zip(*parts, strict=True)
    if len(names) == 1 or len(set(domains)) > 1:
        return listed(names), f", as {shorts[0]}: {{ansible_host: {names[0]}}}"
    domain = domains[0]
    each = f'ansible_host: "{{{{ inventory_hostname }}}}.{domain}"'
    return f"{listed(shorts)}.{domain}", f", once for all, as {each} in their group's vars"


def name_refusals(names: Sequence[str]) -> Iterator[Refusal]:
    """Hosts whose names Slurm, or a host, could not have."""
    spelt: dict[str, list[str]] = defaultdict(list)
    if wrong := [
        name for name in names if not (_RANGE.fullmatch(name) or NODENAME.fullmatch(name))
    ]:
        what = "a NodeName" if len(wrong) == 1 else "NodeNames"
        named, hint = _shortened(wrong)
        yield Refusal(
            f"{named} cannot be {what}; name each host with letters, digits and dashes, "
            f"and put its full name or address into ansible_host{hint}; "
            "scripts/init writes them so."
        )
    for name in names:
        spelt[name.lower()].append(name)
        if name.lower() in RESERVED:
            yield Refusal(
                f"{name} cannot be the name of a host: the word means something else to Slurm or "
                "to the resolver; name it as the other hosts know it, and put its address into "
                "ansible_host."
            )
        elif match := _RANGE.fullmatch(name):
            yield Refusal(
                f"{name} is one host to Ansible, whose ranges have a colon; write "
                f"{match[1]}[{match[2]}:{match[3]}]{match[4]}."
            )
        elif NODENAME.fullmatch(name) and len(name) > NAME_LENGTH:
            yield Refusal(
                f"{name} has {len(name)} characters; the name of a host has at most {NAME_LENGTH}."
            )
    for twins in spelt.values():
        if len(twins) > 1:
            yield Refusal(
                f"{' and '.join(twins)} differ only in upper and lower case, which is one name to "
                "the resolver; rename one."
            )


def cluster_name_refusals(name: object) -> Iterator[Refusal]:
    """A name of the cluster that Slurm or its database cannot take as it is."""
    if isinstance(name, str) and CLUSTER_NAME.fullmatch(name):
        return
    wanted = "letters in lower case, digits, dashes and underscores, at most 40"
    if isinstance(name, str) and CLUSTER_NAME.fullmatch(name.lower()):
        yield Refusal(
            f"cluster_name is {name!r}, of which Slurm would make {name.lower()!r}; "
            f"set it to {name.lower()}."
        )
    else:
        yield Refusal(f"cluster_name is {name!r}; set it to a name of {wanted}.")


def vars_file_refusals(
    folders: Iterable[Path], groups: Collection[str], hosts: Collection[str]
) -> Iterator[Refusal]:
    """Files of group_vars and host_vars that no group or host has the name of."""
    for folder in folders:
        for kind, known, what in (("group_vars", groups, "group"), ("host_vars", hosts, "host")):
            for path in sorted((folder / kind).glob("*")):
                name = path.name if path.is_dir() else path.stem
                if path.name.startswith(".") or (path.is_file() and path.suffix not in SUFFIXES):
                    continue
                if name in known or (what == "host" and name == "localhost"):
                    continue
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else "remove it, or add what it is for."
                yield Refusal(
                    f"{path} is for a {what} {name} that the inventory does not have; {hint}",
                    "vars-of-nobody",
                    name,
                )


# --- addresses -----------------------------------------------------------------------------------


def address_refusals(
    addresses: Mapping[str, str], doors: Mapping[str, tuple[str, str]]
) -> Iterator[Refusal]:
    """Hosts that share an address, or the address and port at which Ansible reaches them."""
    shared: dict[str, list[str]] = defaultdict(list)
    for name, address in addresses.items():
        shared[address].append(name)
    for address, names in shared.items():
        if len(names) > 1:
            yield Refusal(
                f"{listed(names)} have one address, {address}; give each host its "
                "own, and each machine one name.",
                "address-shared",
                address,
            )
    behind: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, door in doors.items():
        behind[door].append(name)
    for (address, port), names in behind.items():
        if len(names) > 1 and len({addresses.get(name) for name in names}) > 1:
            yield Refusal(
                f"{listed(names)} are names of one machine: Ansible reaches them all "
                f"at {address} port {port}; a host has one name and can be in several groups.",
                "machine-twice",
                address,
            )


def address_problem(address: str) -> str:
    """Why other hosts cannot reach a host at an IP address; empty when they can."""
    ip = ipaddress.ip_address(address)
    if ip.is_loopback:
        return f"{address} is every host's own"
    if ip.version == 6:
        return f"{address} is an IPv6 address, at which Slurm's daemons do not listen here,"
    if ip.is_unspecified or ip.is_multicast or ip == ipaddress.IPv4Address("255.255.255.255"):
        return f"{address} is no address of a host"
    return ""


def literal_address(text: str) -> str | None:
    """The IP address in its usual form; None when the text is a name, or no whole address."""
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return None


def unresolved(addresses: Mapping[str, tuple[str, str]]) -> Iterator[Refusal]:
    """Names that the control node cannot resolve: host -> variable ("" for none) and its text."""
    unnamed = [host for host, (variable, _) in addresses.items() if not variable]
    cure = "to the IP address that the other hosts reach it at."
    if unnamed:
        what = "its name" if len(unnamed) == 1 else "each name"
        yield Refusal(
            f"{listed(unnamed)}: there is no ansible_host, and this machine cannot resolve {what}; "
            f"set node_address (or ansible_host) of each {cure}"
        )
    for host, (variable, text) in addresses.items():
        if variable:
            yield Refusal(
                f"{host}: {variable} is {text!r}, which this machine cannot resolve; set "
                f"node_address (or ansible_host) of {host} {cure}"
            )


def hosts_lines(hosts: Sequence[Mapping[str, str]]) -> str:
    """The lines of /etc/hosts for all hosts, in their order."""
    return "".join(f"{host['address']} {host['name']}\n" for host in hosts)
