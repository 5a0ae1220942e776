"""Lines of Slurm's configuration, from declared nodes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from roles.slurm.filter_plugins import slurm


def node(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "address": "10.0.0.1",
        "cpus": {"sockets": 2, "cores_per_socket": 8, "threads_per_core": 2},
        "memory_mb": 64000,
        "gpus": {"model": "h100_sxm", "count": 8},
    } | changes


CPU_ONLY = {"model": "none", "count": 0}
GROUPS = {"gpu_h100": ["gpu1", "gpu2"], "cpu": ["cpu1"], "slurm_login": ["login1"]}
NODES = [node("gpu1"), node("gpu2"), node("cpu1", gpus=CPU_ONLY, memory_mb=16000)]


def test_a_gpu_node_declares_its_topology_and_gres() -> None:
    assert slurm.slurm_node_line(node("gpu1")) == (
        "NodeName=gpu1 NodeAddr=10.0.0.1 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 "
        "RealMemory=64000 Gres=gpu:h100_sxm:8"
    )


def test_a_cpu_node_has_no_gres() -> None:
    assert "Gres" not in slurm.slurm_node_line(node("cpu1", gpus=CPU_ONLY))


@pytest.mark.parametrize(
    ("count", "files"), [(1, "/dev/nvidia0"), (2, "/dev/nvidia[0-1]"), (8, "/dev/nvidia[0-7]")]
)
def test_every_gpu_has_its_device_file(count: int, files: str) -> None:
    line = slurm.slurm_gres_line(node("gpu1", gpus={"model": "a100_sxm", "count": count}))
    assert line == f"NodeName=gpu1 Name=gpu Type=a100_sxm File={files}"


def expand(*entries: str) -> list[str]:
    partitions = [{"name": "p", "nodes": list(entries)}]
    names: list[str] = slurm.slurm_partitions_expanded(partitions, NODES, GROUPS)[0]["nodes"]
    return names


def test_a_partition_names_groups_nodes_or_all_in_the_order_of_the_nodes() -> None:
    assert expand("gpu_h100") == ["gpu1", "gpu2"]
    assert expand("cpu1", "gpu1") == ["gpu1", "cpu1"]
    assert expand("ALL") == ["gpu1", "gpu2", "cpu1"]


def test_a_group_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(AnsibleFilterError, match=r"slurm_partitions\[0\].nodes names \"gpu_h200\""):
        expand("gpu_h200")
    with pytest.raises(AnsibleFilterError, match="groups with compute nodes: cpu, gpu_h100"):
        expand("gpu_h200")


def test_a_partition_without_a_compute_node_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="has no compute node"):
        expand("slurm_login")


def test_a_job_without_memory_gets_its_share_of_the_smallest_node() -> None:
    partition = {"name": "p", "nodes": ["gpu1", "cpu1"], "default": True}
    line = slurm.slurm_partition_line(partition, NODES)
    assert line == (
        "PartitionName=p Nodes=gpu1,cpu1 Default=YES MaxTime=INFINITE DefMemPerCPU=500 State=UP"
    )


def test_settings_of_a_partition_win() -> None:
    partition = {
        "name": "p",
        "nodes": ["gpu1"],
        "max_time": "1-00:00:00",
        "settings": {"DefMemPerCPU": 10, "PriorityTier": 5},
    }
    words = slurm.slurm_partition_line(partition, NODES).split()
    assert {"MaxTime=1-00:00:00", "DefMemPerCPU=10", "PriorityTier=5"} <= set(words)
