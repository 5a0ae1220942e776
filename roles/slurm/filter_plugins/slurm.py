"""Filters that turn the declared nodes and partitions into lines of Slurm's configuration.

Everything comes from what the inventory declares, nothing from facts of other hosts: a node that
is switched off keeps its line, and the others get theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

Node = Mapping[str, Any]
Partition = Mapping[str, Any]

ALL = "ALL"  # Slurm's own word for every node


def cpus(node: Node) -> int:
    """Logical CPUs of a declared node, as Slurm counts them."""
    parts = node["cpus"]
    return int(parts["sockets"]) * int(parts["cores_per_socket"]) * int(parts["threads_per_core"])


def slurm_gres(node: Node) -> str:
    """A node's Gres= value, such as `gpu:h100_sxm:8`; empty for a CPU node."""
    count = int(node["gpus"]["count"])
    return f"gpu:{node['gpus']['model']}:{count}" if count else ""


def slurm_node_line(node: Node) -> str:
    """The NodeName= line of slurm.conf."""
    parts = node["cpus"]
    words = [
        f"NodeName={node['name']}",
        f"NodeAddr={node['address']}",
        f"Sockets={parts['sockets']}",
        f"CoresPerSocket={parts['cores_per_socket']}",
        f"ThreadsPerCore={parts['threads_per_core']}",
        f"RealMemory={node['memory_mb']}",
    ]
    if gres := slurm_gres(node):
        words.append(f"Gres={gres}")
    return " ".join(words)


def slurm_gres_line(node: Node) -> str:
    """The line of gres.conf for one node with GPUs.

    The device files are named, not detected: GPUs can then be confined (ConstrainDevices), and a
    Slurm built without NVML does the same as one with it.
    """
    count = int(node["gpus"]["count"])
    files = "/dev/nvidia0" if count == 1 else f"/dev/nvidia[0-{count - 1}]"
    return f"NodeName={node['name']} Name=gpu Type={node['gpus']['model']} File={files}"


def slurm_partitions_expanded(
    partitions: Sequence[Partition],
    nodes: Sequence[Node],
    groups: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """Partitions with `nodes` as NodeNames, in the order of the nodes.

    An entry of `nodes` is a NodeName, the name of a group of nodes, or ALL.

    Raises AnsibleFilterError when an entry is none of these, or a partition ends up empty.
    """
    names = [node["name"] for node in nodes]
    expanded = []
    for number, partition in enumerate(partitions):
        where = f"slurm_partitions[{number}].nodes"
        chosen: set[str] = set()
        for entry in partition["nodes"]:
            if entry == ALL:
                chosen.update(names)
            elif entry in groups:
                chosen.update(groups[entry])
            elif entry in names:
                chosen.add(entry)
            else:
                known = sorted(
                    name for name, members in groups.items() if set(members) & set(names)
                )
                raise AnsibleFilterError(
                    f'{where} names "{entry}", which is neither a compute node nor a group; '
                    f"groups with compute nodes: {', '.join(known)}."
                )
        members = [name for name in names if name in chosen]
        if not members:
            raise AnsibleFilterError(
                f"{where} has no compute node in it; name a group that has, or {ALL}."
            )
        expanded.append({**partition, "nodes": members})
    return expanded


def slurm_partition_line(partition: Partition, nodes: Sequence[Node]) -> str:
    """The PartitionName= line of slurm.conf, for a partition with NodeNames.

    A job that asks for no memory gets its CPUs' share of the smallest node: without DefMemPerCPU
    it would get the whole memory of its node, and no second job would start there.
    """
    by_name = {node["name"]: node for node in nodes}
    members = [by_name[name] for name in partition["nodes"]]
    share = min(int(node["memory_mb"]) // cpus(node) for node in members)
    settings = {
        "Nodes": ",".join(partition["nodes"]),
        "Default": "YES" if partition.get("default") else "NO",
        "MaxTime": partition.get("max_time") or "INFINITE",
        "DefMemPerCPU": share,
        "State": "UP",
    }
    settings.update(partition.get("settings") or {})
    words = [f"{name}={value}" for name, value in settings.items()]
    return " ".join([f"PartitionName={partition['name']}", *words])


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "slurm_gres_line": slurm_gres_line,
            "slurm_node_line": slurm_node_line,
            "slurm_partition_line": slurm_partition_line,
            "slurm_partitions_expanded": slurm_partitions_expanded,
        }
