"""A test that takes more CPU time than it may fails, whatever the machine is busy with.

A limit of CPU-seconds, of the test itself and of all processes that it starts; they are divided by
what a piece of work of known size takes just then. Beyond the limit a test is told at the end of
the run, beyond twice the limit it fails. One that is worth more says so: `@heavy("why")`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT_S = 5.0
# What `yardstick` took on the machine that the limit is meant for: two cores of an AMD EPYC.
YARDSTICK_S = 0.15


_shared: list[float] = []


def used() -> float:
    """CPU-seconds of this process and of all that it started, running or waited for.

    Without what serves more tests than the one that was the first to ask for it.
    """
    times = os.times()
    return sum(times[:4]) + sum(map(_of, _children())) - sum(_shared)


def share(seconds: float) -> None:
    """Charges no test with CPU-seconds of a process that serves all, such as what it loads once."""
    _shared.append(seconds)


def yardstick() -> float:
    """How many times longer than on the machine of the limit a piece of work takes here and now."""
    began = time.process_time()
    document = {str(number): [number] * 10 for number in range(1000)}
    for _ in range(40):
        json.loads(json.dumps(document, indent=1))
    return (time.process_time() - began) / YARDSTICK_S


def complaint(seconds: float, slowness: float) -> str:
    """What is wrong with a test that took so many CPU-seconds; empty if nothing is."""
    taken = seconds / max(slowness, 1.0)
    if taken <= LIMIT_S:
        return ""
    return (
        f"{taken:.1f} CPU-seconds, {LIMIT_S:.0f} are the limit of a test that is not marked heavy"
    )


def is_failure(seconds: float, slowness: float) -> bool:
    """Whether it is so much that no noise explains it."""
    return seconds / max(slowness, 1.0) > 2 * LIMIT_S


def _children() -> Iterator[int]:
    for path in Path("/proc/self/task").glob("*/children"):
        yield from map(int, _text(path).split())


def _text(path: Path) -> str:
    """What a file says. Not by `read_text`, in whose place a test may have put its own."""
    with open(path) as file:
        return file.read()


def _of(process: int) -> float:
    """Of a process that runs, and of those that it has waited for."""
    try:
        text = _text(Path(f"/proc/{process}/stat"))
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it has ended meanwhile
    ticks = text.rpartition(")")[2].split()[11:15]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
