"""Calls of one collective operation, all checked, each timed on every rank.

Before each timed call all ranks line up; what a rank does between two calls, filling buffers and
comparing what came, is its own work, and no other rank's speed has a part in it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from validation.payloads.gpu_timing import Event

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Call:
    """How one operation is called: each step gets the number of the call.

    fill   writes what this rank gives, and makes what lies in the result's place wrong
    run    the operation, over all ranks
    wrong  how many elements of the result are wrong, as whole numbers on the device
    """

    fill: Callable[[int], object]
    run: Callable[[int], object]
    wrong: Callable[[int], torch.Tensor]


@dataclass(frozen=True)
class Timed:
    """seconds: of each call on this rank; work_s: the median of its own work around a call;
    wrong: the sum of Call.wrong over all calls, those of the warm-up among them; checked: how many
    these are.
    """

    seconds: list[float]
    work_s: float
    wrong: torch.Tensor
    checked: int


def timed(call: Call, device: torch.device, warmup: int, iterations: int) -> Timed:
    """Collective: `warmup` calls, then `iterations` that are timed."""
    wrong = [_checked(call, number) for number in range(warmup)]
    measure = _on_gpu if device.type == "cuda" else _on_cpu
    seconds, work, later = measure(call, device, range(warmup, warmup + iterations))
    wrong += later
    return Timed(seconds, statistics.median(work), sum(wrong[1:], wrong[0]), len(wrong))


def _checked(call: Call, number: int) -> torch.Tensor:
    call.fill(number)
    call.run(number)
    return call.wrong(number)


# Of each call: its seconds, those of the own work around it, and the wrong elements.
_Measured = tuple[list[float], list[float], "list[torch.Tensor]"]


def _on_cpu(call: Call, device: torch.device, numbers: range) -> _Measured:
    """Wall seconds of each call, begun together."""
    import torch.distributed as dist

    seconds, work, wrong = [], [], []
    for number in numbers:
        begun = time.perf_counter()
        call.fill(number)
        ready = time.perf_counter()
        dist.barrier()
        start = time.perf_counter()
        call.run(number)
        end = time.perf_counter()
        wrong.append(call.wrong(number))
        seconds.append(end - start)
        work.append(ready - begun + time.perf_counter() - end)
    return seconds, work, wrong


def _on_gpu(call: Call, device: torch.device, numbers: range) -> _Measured:
    """Seconds of each call on the GPU's own clock. A reduction of a single element lines the ranks'
    streams up, as the barrier does on CPUs; a wait on the host would add its own delay to small
    sizes.
    """
    import torch
    import torch.distributed as dist

    event: Any = torch.cuda.Event  # carries no annotations
    element = torch.zeros(1, device=device)
    stream = Stream(
        event=lambda: event(enable_timing=True),
        spin=torch.cuda._sleep,
        line_up=lambda: dist.all_reduce(element),
        synchronize=lambda: torch.cuda.synchronize(device),
    )
    return on_stream(call, stream, numbers)


@dataclass(frozen=True)
class Stream:
    """What calls are timed with on a GPU. Given, so that the order of the calls can be tested
    without one.

    event         makes an event of the GPU
    spin          keeps the GPU busy for so many of its clock's cycles; does not wait for it
    line_up       a first thing that no rank gets past alone; does not wait for it either
    synchronize   returns when the GPU has done all its work
    """

    event: Callable[[], Event]
    spin: Callable[[int], object]
    line_up: Callable[[], object]
    synchronize: Callable[[], object]


# A millisecond or two of a clock between 1 and 2 GHz. The host takes some 20 to 60 µs for each
# operation that it hands over (reckoned).
SPIN_CYCLES = 2_000_000


def on_stream(call: Call, stream: Stream, numbers: range) -> _Measured:
    """The calls one after another, with one wait for the GPU at the end.

    Before each of them the GPU spins until the host has handed over what follows. It would else
    come to `start` while the host still prepares a small call, and count that as time of the call.
    """
    marks, wrong = [], []
    for number in numbers:
        begun, ready, start, end, done = (stream.event() for _ in range(5))
        begun.record()
        call.fill(number)
        ready.record()
        stream.spin(SPIN_CYCLES)
        stream.line_up()  # after it: ranks that spun for longer are waited for
        start.record()
        call.run(number)
        end.record()
        wrong.append(call.wrong(number))
        done.record()
        marks.append((begun, ready, start, end, done))
    stream.synchronize()
    seconds = [start.elapsed_time(end) / 1000 for _, _, start, end, _ in marks]
    work = [
        (begun.elapsed_time(ready) + end.elapsed_time(done)) / 1000
        for begun, ready, _, end, done in marks
    ]
    return seconds, work, wrong
