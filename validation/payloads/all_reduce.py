"""all_reduce over all ranks: is every element of the sum right, and how fast does it come?

Rank r contributes j + r + 1 to element i, with j = i mod P and P prime, so that for n ranks the sum
is n*j + n(n+1)/2. A missing rank changes every element, and so does a rank that counts twice in
place of another; elements that land in the wrong place show, because sums repeat every P elements
and buffers are cut into powers of two. All partial sums are integers up to 2^24, which float32
holds exactly in any order of adding, so a single wrong bit counts.

all_reduce works in place, so the buffer is refilled before every call, outside the timed region.
Every element is checked after the first call and again after the last timed one: that second check
sees the very result that was timed, because the refill before it had erased all earlier sums.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from validation.payloads import bandwidth
from validation.payloads.config import GroupConfig, require, require_positive
from validation.payloads.errors import CannotRun
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch

ITEM_BYTES = 4  # float32
LARGEST_EXACT = 2**24
PRIMES = (8191, 127)  # the smaller one leaves room for the sums of more ranks
TILE_PERIODS = 512  # of the pattern at a time: 16 MiB, small beside any buffer worth measuring


@dataclass(frozen=True, kw_only=True)
class Config(GroupConfig):
    """sizes_bytes: buffer sizes, measured in this order; iterations and warmup: calls per size."""

    sizes_bytes: tuple[int, ...]
    iterations: int = 20
    warmup: int = 5
    dtype: str = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        # the first check needs a call that is not timed
        require_positive(self, "iterations", "warmup")
        require(self.dtype == "float32", f'dtype is "{self.dtype}", and only float32 is supported')
        for size in self.sizes_bytes:
            whole = size > 0 and size % ITEM_BYTES == 0
            require(whole, f"sizes_bytes has {size}, no multiple of {ITEM_BYTES} bytes")


@dataclass(frozen=True)
class Measured:
    """One size. Seconds per call on the slowest rank; GB/s at the median; wrong elements summed
    over both checks and all ranks."""

    bytes: int
    elements: int
    time_s_median: float
    time_s_min: float
    time_s_max: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: int


@dataclass(frozen=True)
class Pattern:
    """What rank `rank` of `ranks` contributes, and the sum; both repeat every `prime` elements."""

    rank: int
    ranks: int
    prime: int

    def contribution(self, element: int) -> int:
        return element % self.prime + self.rank + 1

    def total(self, element: int) -> int:
        return self.ranks * (element % self.prime) + self.ranks * (self.ranks + 1) // 2


def pattern(rank: int, ranks: int) -> Pattern:
    """The pattern with the largest prime whose sums stay exact.

    Raises CannotRun from about 5,700 ranks on.
    """
    for prime in PRIMES:
        found = Pattern(rank, ranks, prime)
        if found.total(prime - 1) <= LARGEST_EXACT:
            return found
    raise CannotRun(f"float32 cannot hold the sum over {ranks} ranks exactly")


def measure(config: Config, group: Group) -> dict[str, Any]:
    """Every size in turn; see Measured. Collective: all ranks must call it."""
    return {"sizes": [asdict(_measure_size(config, group, size)) for size in config.sizes_bytes]}


def _measure_size(config: Config, group: Group, size: int) -> Measured:
    import torch

    buffer = torch.empty(size // ITEM_BYTES, dtype=torch.float32, device=group.device)
    rule = pattern(group.rank, group.size)
    mine, total = _tiles(rule, group.device)

    wrong = 0
    for call in range(config.warmup):
        fill(buffer, mine)
        reduce(buffer)
        if call == 0:
            wrong += count_wrong(buffer, total)
    times = (_time_cuda if group.device.type == "cuda" else _time_cpu)(config, buffer, mine)
    wrong += count_wrong(buffer, total)

    seconds = group.slowest(times)
    median = statistics.median(seconds)
    return Measured(
        bytes=size,
        elements=buffer.numel(),
        time_s_median=median,
        time_s_min=min(seconds),
        time_s_max=max(seconds),
        algbw_gbs=bandwidth.algbw(size, median),
        busbw_gbs=bandwidth.busbw("all_reduce", group.size, size, median),
        wrong=sum(group.gather(wrong)),
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


def count_wrong(buffer: torch.Tensor, tile: torch.Tensor) -> int:
    """Elements that differ from the repeated tile; one that is not a number differs."""
    import torch

    wrong = torch.zeros((), dtype=torch.int64, device=buffer.device)
    for part in torch.split(buffer, tile.numel()):
        wrong += (part != tile[: part.numel()]).sum()
    return int(wrong.item())


def _tiles(rule: Pattern, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """TILE_PERIODS periods of this rank's contribution and of the sum, each [tile] float32."""
    import torch

    def tile(values: list[int]) -> torch.Tensor:
        period = torch.tensor(values, dtype=torch.float32, device=device)
        return period.repeat(TILE_PERIODS)

    period = range(rule.prime)
    return tile([rule.contribution(i) for i in period]), tile([rule.total(i) for i in period])


def _time_cpu(config: Config, buffer: torch.Tensor, mine: torch.Tensor) -> list[float]:
    """Wall seconds of each call, begun together."""
    import torch.distributed as dist

    seconds = []
    for _ in range(config.iterations):
        fill(buffer, mine)
        dist.barrier()
        start = time.perf_counter()
        reduce(buffer)
        seconds.append(time.perf_counter() - start)
    return seconds


def _time_cuda(config: Config, buffer: torch.Tensor, mine: torch.Tensor) -> list[float]:
    """Seconds of each call on the GPU's own clock, with one wait for the GPU at the end.

    A reduction of a single element before each call lines the ranks' streams up, as the barrier
    does on CPUs; a wait on the host would add its own delay to small sizes.
    """
    import torch

    event: Any = torch.cuda.Event  # carries no annotations
    events = [
        (event(enable_timing=True), event(enable_timing=True)) for _ in range(config.iterations)
    ]
    line_up = torch.zeros(1, device=buffer.device)
    for start, end in events:
        fill(buffer, mine)
        reduce(line_up)
        start.record()
        reduce(buffer)
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1000 for start, end in events]
