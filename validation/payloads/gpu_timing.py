"""How long each repetition of some work takes on a device.

On a GPU two events stand around each repetition, on the stream that the work itself runs on, and
the host waits once, at the end: a wait after each repetition would add the time of its own launch,
and let the clocks fall in between. What the events say can then be held against the host's clock.

Events, the wait and the clock are given, so that the order of the calls can be tested without a
GPU, and so that the same code times a CPU.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

# A GPU that waited runs at a fraction of its clock, and its bus may sleep; both wake within some
# tens of milliseconds.
WARM_S = 0.25


class Event(Protocol):
    """As torch.cuda.Event(enable_timing=True)."""

    def record(self) -> None: ...

    def elapsed_time(self, end: Any, /) -> Any:
        """Milliseconds from this event to `end`, once both have happened."""


class ClockEvent:
    """An event of a device that has done its work when the call returns: a CPU."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._at = math.nan

    def record(self) -> None:
        self._at = self._clock()

    def elapsed_time(self, end: ClockEvent) -> float:
        return (end._at - self._at) * 1000


@dataclass(frozen=True)
class Stopwatch:
    """What a device is timed with.

    event         makes an event of the device
    synchronize   returns when the device has done all its work
    clock         the host's clock, seconds
    warm_s        how long it has to work before its clocks stand where work puts them, seconds
    """

    event: Callable[[], Event]
    synchronize: Callable[[], None]
    clock: Callable[[], float] = time.perf_counter
    warm_s: float = 0.0


@dataclass(frozen=True)
class Times:
    """Seconds. The total is that of all repetitions by the device's events, `wall_s` what passed
    meanwhile by the host's clock: a total above it is impossible."""

    iterations: int
    time_s_median: float
    time_s_min: float
    time_s_max: float
    time_s_total: float
    wall_s: float


def cpu_stopwatch() -> Stopwatch:
    return Stopwatch(ClockEvent, lambda: None)


def cuda_stopwatch() -> Stopwatch:
    """For the current device and stream."""
    import torch

    event: Any = torch.cuda.Event  # carries no annotations
    return Stopwatch(lambda: event(enable_timing=True), torch.cuda.synchronize, warm_s=WARM_S)


def time_each(work: Callable[[], object], iterations: int, watch: Stopwatch) -> Times:
    """The times of `iterations` repetitions, one after another without a pause."""
    # Made beforehand: the first use of a timer's memory is not part of what is timed.
    events = [(watch.event(), watch.event()) for _ in range(iterations)]
    watch.synchronize()
    began = watch.clock()
    for start, end in events:
        start.record()
        work()
        end.record()
    watch.synchronize()
    wall = watch.clock() - began
    seconds = [start.elapsed_time(end) / 1000 for start, end in events]
    return Times(
        iterations=iterations,
        time_s_median=statistics.median(seconds),
        time_s_min=min(seconds),
        time_s_max=max(seconds),
        time_s_total=math.fsum(seconds),
        wall_s=wall,
    )


def warmed_up(work: Callable[[], object], warmup: int, watch: Stopwatch) -> float:
    """Seconds of one repetition, at the median, when the device is warm."""
    single_s = time_each(work, warmup, watch).time_s_median
    if watch.warm_s:
        single_s = time_each(work, enough(watch.warm_s, single_s, warmup), watch).time_s_median
    return single_s


def kept_busy(
    work: Callable[[], object], seconds: float, repetition_s: float, watch: Stopwatch
) -> None:
    """Repeats work for so long by the host's clock, without timing it.

    The host waits after each quarter of a second of work: a queue that held all of it would make
    the clock say how fast the host is.
    """
    batch = enough(WARM_S, repetition_s, 1)
    began = watch.clock()
    while watch.clock() - began < seconds:
        for _ in range(batch):
            work()
        watch.synchronize()


def enough(seconds: float, repetition_s: float, least: int, most: int = 5000) -> int:
    """How many repetitions of `repetition_s` each fill so many seconds; at least `least`."""
    return max(least, min(most, math.ceil(seconds / repetition_s))) if repetition_s > 0 else most
