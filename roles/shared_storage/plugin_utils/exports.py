"""Folders that hosts export, to whom, and how /etc/exports has it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from roles.shared_storage.plugin_utils import paths

# What a tier is for decides whom it is for and what root of a client may do there. On the state of
# the controllers their root writes, and nobody else mounts it.
TIERS = {
    "home": {"mode": "0755", "squash": "root_squash"},
    "scratch": {"mode": "1777", "squash": "root_squash"},
    "state": {"mode": "0755", "squash": "no_root_squash"},
}
# What an export says by itself. `sync`: what a client was told is written is on the disk.
OPTIONS = ("rw", "sync", "no_subtree_check", "sec=sys")
# What opens an export: root of any client, or any user of one.
LOOSE = ("no_root_squash", "insecure", "all_squash", "no_all_squash")
_OPPOSITES = {
    "ro": "rw",
    "async": "sync",
    "subtree_check": "no_subtree_check",
    "wdelay": "no_wdelay",
}

Entry = Mapping[str, Any]


def clients_of(export: Entry, by_tier: Mapping[str, Sequence[str]]) -> list[str]:
    """Names, addresses and networks that may mount it, without the server itself."""
    clients = export.get("clients") or by_tier.get(str(export["tier"]), [])
    return [name for name in dict.fromkeys(map(str, clients)) if name != export["server"]]


def options_of(export: Entry) -> list[str]:
    """Its options, each kind once; those that it names itself win over the role's."""
    options = [str(option) for option in export.get("options") or []]
    kinds = {_kind(option) for option in options}
    own = [*OPTIONS, str(TIERS[str(export["tier"])]["squash"])]
    return [*(option for option in own if _kind(option) not in kinds), *options]


def _kind(option: str) -> str:
    name = option.partition("=")[0]
    return _OPPOSITES.get(name, name)


def problems(
    exports: Sequence[Entry],
    by_tier: Mapping[str, Sequence[str]],
    hosts: Sequence[Mapping[str, str]],
    networks: Sequence[str],
) -> list[str]:
    """Why exports cannot be, or are not tight, a sentence each without its end."""
    return list(dict.fromkeys(_problems(exports, by_tier, hosts, networks)))


def _problems(
    exports: Sequence[Entry],
    by_tier: Mapping[str, Sequence[str]],
    hosts: Sequence[Mapping[str, str]],
    networks: Sequence[str],
) -> Iterator[str]:
    names = {host["name"] for host in hosts}
    known = names | {host["address"] for host in hosts}
    for network in networks:
        if (parsed := _network(network)) is None or parsed.prefixlen == 0:
            yield f"shared_storage_networks has {network}, which is no network such as 10.0.0.0/24"
    for export in exports:
        path, server, tier = (str(export[key]) for key in ("path", "server", "tier"))
        where = f"the export {path} of {server}"
        if server not in names:
            yield f"{where} is of a host that the cluster has not; name one of its hosts"
        if why := paths.problem(path):
            yield f"{where} {why}; export a folder that is made for it, such as /srv/home"
        if tier not in TIERS:
            yield f"{where} is of the tier {tier}, which is none; known are {', '.join(TIERS)}"
            continue
        for option in map(str, export.get("options") or []):
            if option.partition("=")[0] in LOOSE or not option or set(option) & set(" ,()\\\"'#"):
                yield f"{where} has the option {option}, which is not for here; leave it out"
        clients = clients_of(export, by_tier)
        if not clients:
            yield f"{where} has no clients; name hosts of the cluster in its clients"
        for client in clients:
            if client not in known and not _within(client, networks):
                yield (
                    f"{where} is for {client}, which is no host of the cluster; name hosts of the "
                    "cluster, or say in shared_storage_networks which networks have no others"
                )
    yield from _beside(exports)


def _beside(exports: Sequence[Entry]) -> Iterator[str]:
    """Exports of one server that are the same folder, or one inside another."""
    placed = [(str(export["server"]), str(export["path"])) for export in exports]
    for number, (server, path) in enumerate(placed):
        for other_server, other in placed[:number]:
            if server == other_server and path == other:
                yield f"{server} exports {path} twice; leave one of the two"
            elif server == other_server and (
                paths.inside(path, other) or paths.inside(other, path)
            ):
                inner, outer = sorted((path, other), key=len, reverse=True)
                yield (
                    f"{server} exports {inner}, which is inside its export {outer}, so who may "
                    "mount one reaches the other; export folders beside each other"
                )


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def _within(client: str, networks: Iterable[str]) -> bool:
    subnet = _network(client)
    declared = (_network(network) for network in networks)
    return subnet is not None and any(
        network is not None and network.version == subnet.version and subnet.subnet_of(network)  # type: ignore[arg-type]
        for network in declared
    )


def lines(
    exports: Sequence[Entry],
    by_tier: Mapping[str, Sequence[str]],
    hosts: Sequence[Mapping[str, str]],
    server: str,
) -> str:
    """The text of a file of exports(5). Addresses: mountd asks no name server who a client is."""
    address = {host["name"]: host["address"] for host in hosts}
    text = ""
    for export in exports:
        if export["server"] == server:
            clients = dict.fromkeys(address.get(c, c) for c in clients_of(export, by_tier))
            words = [f"{export['path']} -{','.join(options_of(export))}", *clients]
            text += " \\\n    ".join(words) + "\n"
    return text


def folders(exports: Sequence[Entry], server: str) -> list[dict[str, str]]:
    """The folders that a server exports, with the mode of their tier."""
    return [
        {"path": str(export["path"]), "mode": str(TIERS[str(export["tier"])]["mode"])}
        for export in exports
        if export["server"] == server
    ]
