"""A transformer on a mesh of data × tensor ranks: sharded one way, sliced the other.

See `sharded`. A row has as many ranks as divide a node's, or where nodes have one rank each the
number of all, evenly, but no more than there are rows: 4 ranks are 2 × 2, three nodes of 8 are
6 × 4. A number of ranks that nothing divides has rows of one.
"""

from __future__ import annotations

import math
from typing import Any

from validation.payloads import sharded
from validation.payloads.group import Group

Config = sharded.Config

LONGEST_ROW = 8


def measure(config: Config, group: Group) -> dict[str, Any]:
    """See sharded.measure. Collective: all ranks must call it."""
    from torch.distributed.device_mesh import init_device_mesh

    hosts = group.gather(group.itself.host)
    tensor = columns(group.size, hosts.count(hosts[0]))
    model = sharded.Model(range(group.size), tensor)
    mesh = init_device_mesh(
        group.device.type, (model.data, tensor), mesh_dim_names=("data", "tensor")
    )
    cell = sharded.Cell(group.rank, model, mesh["data"], mesh["tensor"])
    return sharded.measure(config, group, cell, [model])


def columns(ranks: int, ranks_per_node: int) -> int:
    """How many ranks a row has."""
    evenly = ranks if ranks_per_node == 1 else ranks_per_node
    most = min(LONGEST_ROW, math.isqrt(ranks))
    return max(count for count in range(1, most + 1) if evenly % count == 0 == ranks % count)
