"""How fast data moves within a GPU, between it and the host, and between two GPUs.

All bytes that are read and all that are written count within a GPU, as in STREAM: a copy moves its
buffer twice, a triad (a = b + s c) three times. A transfer from one memory to another counts once.
1 GB is 1e9 bytes, and a speed is taken from the median time.

Buffers are several times as large as an L2 cache; one that fits into it would measure the cache.
What arrived is looked at after every measurement, every element of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from validation.payloads import gpu_timing
from validation.payloads.gpu_device import Device

if TYPE_CHECKING:
    import torch

# operation: how often its buffer's bytes are moved
MOVED = {"copy": 2, "triad": 3}
DIRECTIONS = ("h2d", "d2h")

_SCALAR = 3.0
_ROW = 1 << 16  # elements of a row of the pattern
_PERIOD = 1021  # a prime: neighbouring rows and powers of two look different
_ROWS_AT_ONCE = 64
_STALE = -1.0  # what is not overwritten shows


def within(
    operation: str,
    device: Device,
    size: int,
    *,
    iterations: int,
    warmup: int,
    begin: Callable[[], None],
) -> dict[str, Any]:
    """A copy or a triad over buffers of `size` bytes of float32 in the device's own memory.

    bytes   of one buffer
    moved   by one repetition, read and written
    gbs     moved over the median time
    wrong   elements of the result that are not what they should be
    began, ended   of the load, by time.monotonic()
    """
    import torch

    rows = size // 4 // _ROW
    result = torch.full((rows, _ROW), _STALE, device=device.torch)
    first, second = torch.empty_like(result), torch.empty_like(result)
    _fill(first, 0)
    _fill(second, 1)

    def work() -> object:
        if operation == "copy":
            return result.copy_(first)
        return torch.add(first, second, alpha=_SCALAR, out=result)

    work()
    device.watch.synchronize()
    begin()
    began = time.monotonic()
    gpu_timing.warmed_up(work, warmup, device.watch)
    result.fill_(_STALE)
    times = gpu_timing.time_each(work, iterations, device.watch)
    ended = time.monotonic()
    bytes_ = result.numel() * 4
    moved = MOVED[operation] * bytes_
    return {
        "operation": operation,
        "bytes": bytes_,
        "moved": moved,
        **asdict(times),
        "gbs": _gbs(moved, times),
        "wrong": _wrong(result, operation),
        "began": began,
        "ended": ended,
    }


def _pattern(first: int, last: int, offset: int, device: torch.device) -> torch.Tensor:
    """Rows `first` to before `last` of a pattern of whole numbers, [last - first, _ROW]."""
    import torch

    place = torch.arange(_ROW, device=device)
    row = torch.arange(first, last, device=device)
    return ((place[None, :] + 7 * row[:, None] + 13 * offset) % _PERIOD).float()


def _fill(buffer: torch.Tensor, offset: int) -> None:
    for first in range(0, buffer.shape[0], _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, buffer.shape[0])
        buffer[first:last] = _pattern(first, last, offset, buffer.device)


def _wrong(result: torch.Tensor, operation: str) -> int:
    """How many elements are wrong; float32 holds all of these numbers exactly."""
    import torch

    wrong = torch.zeros((), dtype=torch.int64, device=result.device)
    for first in range(0, result.shape[0], _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, result.shape[0])
        expected = _pattern(first, last, 0, result.device)
        if operation == "triad":
            expected += _SCALAR * _pattern(first, last, 1, result.device)
        wrong += (result[first:last] != expected).sum()
    return int(wrong)


def with_host(
    direction: str, device: Device, size: int, seed: int, *, iterations: int, warmup: int
) -> dict[str, Any]:
    """Copies of `size` bytes from the host's memory or to it, page-locked where there is a GPU.

    The data make the whole way, there and back, whichever direction is timed.

    wrong   bytes that did not come back as they went
    """
    import torch

    data = _random(size, seed)
    sent = torch.empty(size, dtype=torch.uint8, pin_memory=device.is_gpu)
    sent.copy_(data)
    back = torch.zeros(size, dtype=torch.uint8, pin_memory=device.is_gpu)
    there = sent.to(device.torch, copy=True)
    outward = direction == "h2d"
    source, target = (sent, there) if outward else (there, back)

    def work() -> object:
        return target.copy_(source, non_blocking=True)

    gpu_timing.warmed_up(work, warmup, device.watch)
    target.zero_()
    times = gpu_timing.time_each(work, iterations, device.watch)
    if outward:
        back.copy_(there)
    return {
        "direction": direction,
        "bytes": size,
        **asdict(times),
        "gbs": _gbs(size, times),
        "wrong": int((back != data).sum()),
    }


def between(
    source: torch.device,
    target: torch.device,
    watch: gpu_timing.Stopwatch,
    size: int,
    seed: int,
    *,
    iterations: int,
    warmup: int,
) -> dict[str, Any]:
    """Copies of `size` bytes from one GPU to another; `watch` belongs to the source's stream.

    way     "direct" where one GPU reaches the other's memory, "host" where all goes through that
    wrong   bytes that are not on the target as they were on the source
    """
    import torch

    data = _random(size, seed)
    here = data.to(source, copy=True)
    there = torch.zeros(size, dtype=torch.uint8, device=target)

    def work() -> object:
        return there.copy_(here, non_blocking=True)

    gpu_timing.warmed_up(work, warmup, watch)
    there.zero_()
    times = gpu_timing.time_each(work, iterations, watch)
    _wait_for(source, target)
    return {
        "way": _way(source, target),
        "bytes": size,
        **asdict(times),
        "gbs": _gbs(size, times),
        "wrong": int((there.cpu() != data).sum()),
    }


def _way(source: torch.device, target: torch.device) -> str:
    import torch

    if source.type != "cuda":
        return "host"
    reaches = torch.cuda.can_device_access_peer(source.index, target.index)
    return "direct" if reaches else "host"


def _wait_for(*devices: torch.device) -> None:
    import torch

    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def _random(size: int, seed: int) -> torch.Tensor:
    """Bytes that are the same for one seed, on the CPU."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(-(2**62), 2**62, (-(-size // 8),), generator=generator)
    return words.view(torch.uint8)[:size]


def _gbs(moved: int, times: gpu_timing.Times) -> float:
    return moved / times.time_s_median / 1e9 if times.time_s_median > 0 else math.inf
