"""all_reduce over all ranks: is every element of the sum right, and how fast does it come?

Of n ranks, rank r contributes s(i) * (M - h(r, i)) to element i: M is 2^24 / n rounded down, h a
hash below M/2, s(i) a sign that depends on the element alone. So all sums lie between 2^23 and
2^24, where a float32 spends all 24 bits on the number, and are whole numbers that come out exactly
in any order of adding. A rank that is missing, or counts twice in place of others, or lands in
another place changes nearly every element, whichever ranks they are; a single wrong bit of one
element counts. The pattern repeats every PERIOD elements, a prime, because buffers are cut into
powers of two.

all_reduce works in place, so the buffer is refilled before every call and every element is checked
after it, both outside the timed region.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from validation.payloads import bandwidth
from validation.payloads.config import GroupConfig, require
from validation.payloads.group import Group
from validation.payloads.pattern import PERIOD, mix
from validation.payloads.timed_calls import Call, timed

if TYPE_CHECKING:
    import torch

ITEM_BYTES = 4  # float32
LARGEST_EXACT = 2**24
MOST_RANKS = LARGEST_EXACT // 4  # so that the hash has some room
TILE_PERIODS = 512  # of the pattern at a time: 16 MiB, small beside any buffer worth measuring
RANKS_AT_ONCE = 64  # in adding up the expected sum: 4 MiB of whole numbers


@dataclass(frozen=True, kw_only=True)
class Config(GroupConfig):
    """sizes_bytes: buffer sizes, measured in this order; iterations and warmup: calls per size."""

    sizes_bytes: tuple[int, ...]
    iterations: int = 20
    warmup: int = 5
    dtype: str = "float32"
    diagnosed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.dtype == "float32", f'dtype is "{self.dtype}", and only float32 is supported')
        for size in self.sizes_bytes:
            whole = size > 0 and size % ITEM_BYTES == 0
            require(whole, f"sizes_bytes has {size}, no multiple of {ITEM_BYTES} bytes")


@dataclass(frozen=True)
class Measured:
    """One size. Seconds per call on the slowest rank; GB/s at the median, 0 of one rank, for which
    NCCL may have nothing to do and a GPU's clock then tells no time; how many elements were
    wrong on each rank, over all calls that were checked; seconds of each rank's own work around a
    call (timed_calls.Timed)."""

    bytes: int
    elements: int
    dtype: str
    calls_checked: int
    calls_s: list[float]
    time_s_median: float
    time_s_min: float
    time_s_max: float
    algbw_gbs: float
    busbw_gbs: float
    wrong_by_rank: list[int]
    work_s_by_rank: list[float]


def contribution(first: int, last: int, ranks: int) -> torch.Tensor:
    """What the ranks from `first` to before `last` add: whole numbers, [last - first, PERIOD].

    Raises CannotRun for more ranks than float32 has room for.
    """
    import torch

    require(ranks <= MOST_RANKS, f"float32 cannot hold the sum over {ranks} ranks exactly")
    largest = LARGEST_EXACT // ranks
    half = largest // 2
    element = torch.arange(PERIOD)
    rank = torch.arange(first, last)
    hashed = mix(mix(element + 1)[None, :] + rank[:, None])
    sign = 1 - 2 * (mix(element + PERIOD) & 1)
    return sign[None, :] * (largest - ((hashed & 2**24 - 1) * half >> 24))  # faster than a modulo


def total(ranks: int) -> torch.Tensor:
    """The sum over all ranks, [PERIOD] whole numbers."""
    import torch

    sums = torch.zeros(PERIOD, dtype=torch.int64)
    for first in range(0, ranks, RANKS_AT_ONCE):
        sums += contribution(first, min(first + RANKS_AT_ONCE, ranks), ranks).sum(dim=0)
    return sums


def measure(config: Config, group: Group) -> dict[str, Any]:
    """Every size in turn, see Measured, and over what, see Group.transport.

    Collective: all ranks must call it.
    """
    mine = tile(contribution(group.rank, group.rank + 1, group.size)[0], group.device)
    expected = tile(total(group.size), group.device)
    sizes = []
    for size in config.sizes_bytes:
        sizes.append(asdict(_measure_size(config, group, size, mine, expected)))
    return {"sizes": sizes, "transport": group.transport()}


def _measure_size(
    config: Config, group: Group, size: int, mine: torch.Tensor, expected: torch.Tensor
) -> Measured:
    import torch

    group.watch.doing(f"timing {size} bytes")
    buffer = torch.empty(size // ITEM_BYTES, dtype=torch.float32, device=group.device)
    call = Call(
        fill=lambda _: fill(buffer, mine),
        run=lambda _: reduce(buffer),
        wrong=lambda _: count_wrong(buffer, expected),
    )
    with group.at_work():
        measured = timed(call, group.device, config.warmup, config.iterations)
    seconds = group.slowest(measured.seconds)
    median = statistics.median(seconds)
    return Measured(
        bytes=size,
        elements=buffer.numel(),
        dtype=str(buffer.dtype).removeprefix("torch."),
        calls_checked=measured.checked,
        calls_s=seconds,
        time_s_median=median,
        time_s_min=min(seconds),
        time_s_max=max(seconds),
        algbw_gbs=bandwidth.algbw(size, median) if group.size > 1 else 0.0,
        busbw_gbs=bandwidth.busbw("all_reduce", group.size, size, median),
        wrong_by_rank=group.gather(int(measured.wrong.item())),
        work_s_by_rank=group.gather(measured.work_s),
    )


def reduce(buffer: torch.Tensor) -> None:
    """Replaces each element by its sum over all ranks."""
    import torch.distributed as dist

    dist.all_reduce(buffer)


def fill(buffer: torch.Tensor, tile: torch.Tensor) -> None:
    """Repeats the tile over the buffer. Shapes [elements] and [tile]."""
    import torch

    for part in torch.split(buffer, tile.numel()):
        part.copy_(tile[: part.numel()])


def count_wrong(buffer: torch.Tensor, tile: torch.Tensor) -> torch.Tensor:
    """Elements that differ from the repeated tile; one that is not a number differs.

    The count stays on the device: reading it would make the host wait for the GPU.
    """
    import torch

    wrong = torch.zeros((), dtype=torch.int64, device=buffer.device)
    for part in torch.split(buffer, tile.numel()):
        wrong += (part != tile[: part.numel()]).sum()
    return wrong


def tile(period: torch.Tensor, device: torch.device) -> torch.Tensor:
    """TILE_PERIODS periods, float32."""
    import torch

    return period.to(device=device, dtype=torch.float32).repeat(TILE_PERIODS)
