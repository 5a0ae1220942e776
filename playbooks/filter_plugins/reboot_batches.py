"""How many nodes may be out of service at once, as the `serial` of a play."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError


def bound(at_once: object, nodes: int, variable: str = "node_reboot_at_once") -> int:
    """`3` or `5%` of so many nodes, rounded down and never less than one.

    Raises AnsibleFilterError for anything else, for it would be judged as some number.
    """
    match = re.fullmatch(r"(?P<number>[0-9]+)(?P<percent>%?)", str(at_once).strip())
    number = int(match["number"]) if match else 0
    if match is None or number < 1 or (match["percent"] and number > 100):
        raise AnsibleFilterError(
            f"{variable} is {at_once!r}; set it to a number of nodes, 1 or more, or to a "
            "percentage such as 5%."
        )
    return max(1, nodes * number // 100) if match["percent"] else number


def reboot_batches(
    hosts: Sequence[str], turns: Collection[str], at_once: object, nodes: int
) -> list[int]:
    """Sizes of batches of `hosts`, in their order, for the `serial` of a play.

    Of `turns`, the hosts that go out of service, the first comes alone: what breaks it breaks no
    other. After it no batch has more of them than `at_once` of all `nodes`. Hosts that stay in
    service count nothing.
    """
    most, wanted = bound(at_once, nodes), set(turns)
    sizes, size, out, allowed = [], 0, 0, 1
    for host in hosts:
        if host in wanted and out == allowed:
            sizes.append(size)
            size, out, allowed = 0, 0, most
        size += 1
        out += host in wanted
    return [*sizes, size] if size else [1]


def planned_batches(hostvars: Mapping[str, Any], hosts: Iterable[str]) -> list[Any]:
    """The batches that an earlier play planned, from any host's variables; else one of all hosts.

    For a play's `serial`, which Ansible also reads when it only checks the syntax, without hosts.
    """
    for host in hosts if hostvars else ():
        if "__node_reboot_batches" in hostvars[host]:
            return list(hostvars[host]["__node_reboot_batches"])
    return ["100%"]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"reboot_batches": reboot_batches, "planned_batches": planned_batches}
