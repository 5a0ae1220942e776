"""Tensor-parallel training of a transformer: the ranks of a row share every block.

Neighbours in rank order form rows of at most 8, which is as far as NVLink reaches in most nodes,
of nearly equal length. They train side by side, each row a model of its own; see `sharded`.
"""

from __future__ import annotations

from typing import Any

from validation.payloads import sharded
from validation.payloads.chains import chains, meet
from validation.payloads.group import Group

Config = sharded.Config

LONGEST_ROW = 8


def measure(config: Config, group: Group) -> dict[str, Any]:
    """See sharded.measure. Collective: all ranks must call it."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    models = [sharded.Model(ranks, len(ranks)) for ranks in chains(group.size, LONGEST_ROW)]
    row = meet(group, [model.ranks for model in models])
    if row.group is None:
        mesh = init_device_mesh(group.device.type, (group.size,))
    else:
        mesh = DeviceMesh.from_group(row.group, group.device.type)
    model = next(model for model in models if group.rank in model.ranks)
    return sharded.measure(config, group, sharded.Cell(group.rank, model, None, mesh), models)
