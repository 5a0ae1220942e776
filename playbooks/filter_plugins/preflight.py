"""What is wrong with the groups of an inventory, as sentences, before any node is touched."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Groups = Mapping[str, Sequence[str]]

ROOT = "slurm_cluster"
COMPUTE = "slurm_compute"
# The contract's groups (docs/inventory.md); a site's own are children of slurm_compute.
GROUPS = {
    ROOT: "the parent of all others",
    "slurm_controller": "slurmctld",
    "slurm_database": "slurmdbd and MariaDB",
    "slurm_login": "where users log in and submit",
    COMPUTE: "slurmd",
    "monitoring": "Prometheus, Alertmanager, Grafana",
    "storage": "NFS server",
}
NEEDED = ("slurm_controller", "slurm_database", "slurm_login", COMPUTE)
ANSIBLES_OWN = {"all", "ungrouped"}

NODENAME = re.compile(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", re.IGNORECASE)


def group_problems(groups: Groups) -> Iterator[str]:
    """Groups that are missing, empty, misspelt, or contradict each other."""
    compute = list(groups.get(COMPUTE, []))
    for name in NEEDED:
        if name not in groups:
            yield f"there is no group {name} ({GROUPS[name]}); inventory/example has them all."
        elif not groups[name]:
            yield f"group {name} ({GROUPS[name]}) has no host; put one into it in the inventory."

    inside = set(groups.get(ROOT, []))
    for name, members in groups.items():
        if name in ANSIBLES_OWN or name in GROUPS or set(members) <= inside:
            continue
        near = difflib.get_close_matches(name, GROUPS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"make it a child of {ROOT}."
        outside = sorted(set(members) - inside)
        yield f"group {name} has hosts that are not in {ROOT} ({', '.join(outside)}); {hint}"

    models: dict[str, list[str]] = {}
    for name, members in groups.items():
        if name in ANSIBLES_OWN or name in GROUPS or not set(members) <= set(compute):
            continue
        for host in members:
            models.setdefault(host, []).append(name)
    for host, of in sorted(models.items()):
        if len(of) > 1:
            yield (
                f"{host} is in {len(of)} groups of compute nodes ({', '.join(of)}), which may "
                "declare different hardware; leave it in one."
            )


def name_problems(groups: Groups) -> Iterator[str]:
    """Hosts whose names Slurm could not use."""
    for name in groups.get(ROOT, []):
        if not NODENAME.match(name):
            yield (
                f"{name!r} cannot be a NodeName; name the host with letters, digits and dashes, "
                "and put its full name or address into ansible_host."
            )


def inventory_problems(groups: Groups) -> list[str]:
    """Everything that is wrong with the groups and names of an inventory."""
    return [*group_problems(groups), *name_problems(groups)]


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"inventory_problems": inventory_problems}
