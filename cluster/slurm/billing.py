"""What a job costs in fair share: the largest share that it takes of its nodes.

Slurm bills CPUs alone. A job with all GPUs of a node and a few of its CPUs would then cost next to
nothing, and nobody else could use the node. With MAX_TRES Slurm bills the largest of the weighted
resources, and these weights make each of them cost the whole node's CPUs when a job has all of it.
One CPU costs 1, as without weights, so partitions without GPUs need none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.slurm.gres import get, kinds
from cluster.slurm.keys import entries

Node = Mapping[str, Any]

WEIGHTS = "TRESBillingWeights"
LARGEST = "MAX_TRES"


def settings(partitions: Any, nodes: Sequence[Node]) -> dict[str, str]:
    """What slurm.conf needs for the weights: nothing without GPUs, or where a site has its own.

    A site's weights may be meant as a sum, and which it is holds for all partitions.
    """
    priced = any(
        isinstance(settings, Mapping) and get(settings, WEIGHTS.lower())
        for partition in partitions
        for settings in [partition.get("settings")]
    )
    return {"PriorityFlags": LARGEST} if any(map(gpus, nodes)) and not priced else {}


def by_share(composed: Mapping[str, Any]) -> bool:
    """Whether Slurm takes the largest of the weighted resources, and counts GPUs at all."""
    of = {name.lower(): [word.lower() for word in entries(composed[name])] for name in composed}
    counted = "gres/gpu" in of.get("accountingstoragetres", ())
    return counted and LARGEST.lower() in of.get("priorityflags", ())


def weights(nodes: Sequence[Node], share: int) -> str:
    """TRESBillingWeights of a partition; nothing without GPUs.

    share: MB of memory that one of its CPUs stands for
    """
    most = max((cpus(node) / gpus(node) for node in nodes if gpus(node)), default=0)
    if not most:
        return ""
    # Rounded down: the memory that a job has by default costs no more than its CPUs.
    memory = math.floor(1024 / share * 10000) / 10000
    return f"CPU=1,Mem={memory:g}G,GRES/gpu={round(most, 2):g}"


def cpus(node: Node) -> int:
    """Logical CPUs of a declared node, as Slurm counts them."""
    parts = node["cpus"]
    return int(parts["sockets"]) * int(parts["cores_per_socket"]) * int(parts["threads_per_core"])


def gpus(node: Node) -> int:
    """GPUs of a declared node, or the instances that MIG makes of them."""
    return sum(kinds(node).values())
