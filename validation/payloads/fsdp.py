"""Fully sharded data-parallel training of a transformer over all ranks: torch's `fully_shard`.

Each rank holds a shard of every parameter, gathers a block's before it computes it, and gets its
shard of the averaged gradient by reduce-scatter; see `sharded`, with one column.
"""

from __future__ import annotations

from typing import Any

from validation.payloads import sharded
from validation.payloads.group import Group

Config = sharded.Config


def measure(config: Config, group: Group) -> dict[str, Any]:
    """See sharded.measure. Collective: all ranks must call it."""
    from torch.distributed.device_mesh import init_device_mesh

    model = sharded.Model(range(group.size), tensor=1)
    mesh = init_device_mesh(group.device.type, (group.size,))
    return sharded.measure(config, group, sharded.Cell(group.rank, model, mesh, None), [model])
