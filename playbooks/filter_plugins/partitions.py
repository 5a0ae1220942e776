"""Partitions as Slurm has them: names of nodes instead of the groups that a site writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

ALL = "ALL"  # Slurm's own word for every node


def slurm_partitions_expanded(
    partitions: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """Partitions with `nodes` as NodeNames, in the order of the nodes.

    An entry of `nodes` is a NodeName, the name of a group of nodes, or ALL.

    Raises AnsibleFilterError when an entry is none of these, or a partition ends up empty.
    """
    names = [node["name"] for node in nodes]
    known = set(names)
    expanded = []
    for number, partition in enumerate(partitions):
        where = f"slurm_partitions[{number}].nodes"
        chosen: set[str] = set()
        for entry in partition["nodes"]:
            if entry == ALL:
                chosen |= known
            elif entry in groups:
                chosen.update(groups[entry])
            elif entry in known:
                chosen.add(entry)
            else:
                usable = sorted(name for name, members in groups.items() if known & set(members))
                raise AnsibleFilterError(
                    f'{where} names "{entry}", which is neither a compute node nor a group; '
                    f"groups with compute nodes: {', '.join(usable)}."
                )
        members = [name for name in names if name in chosen]
        if not members:
            raise AnsibleFilterError(
                f"{where} has no compute node in it; name a group that has, or {ALL}."
            )
        expanded.append({**partition, "nodes": members})
    return expanded


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_partitions_expanded": slurm_partitions_expanded}
