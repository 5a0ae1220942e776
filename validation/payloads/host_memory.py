"""How fast the node's memory is: copies on all cores at once, and whether they are right.

Each core has a process of its own, bound to it, with two arrays; copying one to the other is the C
library's memcpy. Bytes read and bytes written both count, and the arrays of all processes together
are at least four times as large as the last-level caches together, both as STREAM has it
(https://www.cs.virginia.edu/stream/ref.html), as far as the memory allows.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from validation.payloads import each_core
from validation.payloads.config import require
from validation.payloads.disk import different

MEMINFO = Path("/proc/meminfo")
CACHES = 4  # the arrays are so many times as large as the caches
_MIB = 2**20
_LEAST = 16 * _MIB  # of an array, where the memory allows that
_BLOCK = _MIB  # the pattern that fills an array
_ROW = struct.Struct("<QdQ")  # copies, seconds, wrong bytes


def measure(seconds: float, memory_bytes: int, cpus: Path = each_core.CPUS) -> dict[str, Any]:
    """Copies for so many seconds. All arrays together are no larger than `memory_bytes`.

    array_bytes   of one array of one process; it copies it as often as it can
    cache_bytes   of all last-level caches that the cores have; 0 where the kernel does not say
    cores         of each process: its CPU, how many copies, in how many seconds, and the bytes
                  that are wrong afterwards
    Raises CannotRun where a process did not end well.
    """
    cores = each_core.one_of_each(os.sched_getaffinity(0), cpus)
    caches = cache_bytes(cores, cpus)
    size = array_bytes(len(cores), caches, memory_bytes)
    require(size > 0, f"{memory_bytes // _MIB} MiB of memory are too few for {len(cores)} cores")
    rows = each_core.run(cores, _ROW, lambda: _prepared(size, seconds))
    return {
        "array_bytes": size,
        "cache_bytes": caches,
        "cores": [
            {"cpu": cpu, "copies": copies, "seconds": took, "wrong": wrong}
            for cpu, (copies, took, wrong) in zip(cores, rows, strict=True)
        ],
    }


def _prepared(size: int, seconds: float) -> Callable[[], each_core.Row]:
    """One core's arrays, filled. Memory lies beside the core that touches it first."""
    pattern = os.urandom(_BLOCK)
    source, target = memoryview(mmap.mmap(-1, size)), memoryview(mmap.mmap(-1, size))
    for place in range(0, size, _BLOCK):
        source[place : place + _BLOCK] = pattern
    target[:] = bytes(size)

    def copy() -> each_core.Row:
        copies, started = 0, time.perf_counter()
        while (took := time.perf_counter() - started) < seconds or copies == 0:
            target[:] = source
            copies += 1
        wrong = sum(
            different(bytes(target[place : place + _BLOCK]), pattern)
            for place in range(0, size, _BLOCK)
        )
        return copies, took, wrong

    return copy


def array_bytes(cores: int, caches: int, memory_bytes: int) -> int:
    """The size of each of a core's two arrays, in whole MiB; 0 where there is no room."""
    wanted = max(_LEAST, -(-CACHES * caches // cores))
    room = memory_bytes // (2 * cores)
    wanted = -(-wanted // _MIB) * _MIB
    return min(wanted, room // _MIB * _MIB)


def available_bytes(limit_mb: int | None, meminfo: Path = MEMINFO) -> int:
    """The memory that is free for this job: what the kernel says, and at most the job's limit."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text("ascii"), re.MULTILINE)
    require(match is not None, f"{meminfo} has no MemAvailable")
    assert match is not None
    free = int(match[1]) * 1024
    return free if limit_mb is None else min(free, limit_mb * _MIB)


def cache_bytes(cores: Sequence[int], cpus: Path = each_core.CPUS) -> int:
    """The size of the last-level caches of these CPUs, each counted once."""
    sizes: dict[str, int] = {}
    for cpu in cores:
        levels: dict[int, tuple[str, int]] = {}
        for index in (cpus / f"cpu{cpu}" / "cache").glob("index*"):
            with suppress(OSError, ValueError):
                size = re.fullmatch(r"(\d+)([KM])", _text(index / "size"))
                if size:
                    unit = 1024 if size[2] == "K" else _MIB
                    shared = _text(index / "shared_cpu_list")
                    levels[int(_text(index / "level"))] = (shared, int(size[1]) * unit)
        if levels:
            shared, size_bytes = levels[max(levels)]
            sizes[shared] = size_bytes
    return sum(sizes.values())


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()
