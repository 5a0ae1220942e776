"""Which hosts the firewalls of nodes that a run does not come to let in all the same."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError


def strangers_to(hosts: Iterable[Mapping[str, str]], networks: Sequence[str]) -> list[str]:
    """The names of hosts whose address is in none of the networks."""
    try:
        known = [ipaddress.ip_network(str(network), strict=False) for network in networks]
    except ValueError as error:
        raise AnsibleFilterError(f"firewall_node_networks: {error}") from None
    return [
        str(host["name"])
        for host in hosts
        if not any(ipaddress.ip_address(str(host["address"])) in network for network in known)
    ]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"strangers_to": strangers_to}
