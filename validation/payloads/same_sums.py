"""Do collectives give the same bits every time? All ranks exchange seeded random numbers.

all_reduce of ordinary random numbers rounds in every addition, so that another order of adding, or
one wrong bit anywhere, gives another sum. Every call is of the same numbers; of each result a hash
of all bits is taken on the rank's own device (gpu_gemm.bits). The order of adding is that of the
ring: the job's environment asks NCCL for it, since NVLink SHARP adds in an order that may differ
from call to call. Between two calls of one size the buffers move in memory, as they do in training.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from validation.payloads.config import GroupConfig, require
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch

ITEM_BYTES = 4  # float32
# What two of them have in common is told once: all ranks end with the same numbers.
OPERATIONS = ("all_reduce", "all_gather", "broadcast")


@dataclass(frozen=True, kw_only=True)
class Config(GroupConfig):
    """size_bytes: of each rank's numbers, in float32; seconds: how long calls are made; least:
    calls of each operation in a row; seed: of the numbers."""

    size_bytes: int
    seconds: float
    least: int
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.size_bytes % 8 == 0, f"size_bytes is {self.size_bytes}, no multiple of 8")
        require(self.least > 1, "least is 1: nothing to compare with")


def measure(config: Config, group: Group) -> dict[str, Any]:
    """Every operation in turn, for its share of the time.

    operations  of each: `operation`, `calls`, and `hashes`, of each rank its different ones with
                how often each came
    transport   see Group.transport
    Collective: all ranks must call it.
    """
    import torch

    generator = torch.Generator().manual_seed(config.seed + group.rank)
    numbers = torch.randn(config.size_bytes // ITEM_BYTES, generator=generator).to(group.device)
    rows = []
    for operation in OPERATIONS:
        group.watch.doing(f"repeating {operation}")
        calls, hashes = _repeat(config, group, _work(operation, numbers, group))
        rows.append({"operation": operation, "calls": calls, "hashes": group.gather(hashes)})
    return {"operations": rows, "transport": group.transport()}


def _repeat(
    config: Config, group: Group, work: Callable[[], torch.Tensor]
) -> tuple[int, dict[str, int]]:
    """Calls until rank 0 says that the time is over, and how often each result came."""
    from validation.payloads.gpu_gemm import bits

    hashes: dict[str, int] = {}
    calls, began = 0, time.monotonic()
    over = False
    while not over:
        for _ in range(config.least):
            own = bits(work())
            hashes[own] = hashes.get(own, 0) + 1
        calls += config.least
        over = group.gather(time.monotonic() - began > config.seconds / len(OPERATIONS))[0]
    return calls, hashes


def _work(operation: str, numbers: torch.Tensor, group: Group) -> Callable[[], torch.Tensor]:
    import torch
    import torch.distributed as dist

    def all_reduce() -> torch.Tensor:
        result = numbers.clone()
        dist.all_reduce(result)
        return result

    def all_gather() -> torch.Tensor:
        parts = [torch.empty_like(numbers) for _ in range(group.size)]
        dist.all_gather(parts, numbers)
        return torch.cat(parts)

    def broadcast() -> torch.Tensor:
        result = numbers.clone()
        dist.broadcast(result, src=group.size - 1)
        return result

    return {"all_reduce": all_reduce, "all_gather": all_gather, "broadcast": broadcast}[operation]
