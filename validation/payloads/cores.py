"""How fast each core computes, alone and with all others, and whether it computes right.

A try is a SHA-256 of a buffer that fits into a core's own cache, a fraction of a millisecond. Each
core tries again and again and its best counts: what interrupts it (another process, the machine's
hypervisor) costs some tries and not all, what slows the core itself costs every one.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from pathlib import Path
from typing import Any

from validation.payloads import each_core

ALONE_S = 0.005  # of each core; a server has some hundred
TOGETHER_S = 0.3
FEWEST = 3  # tries
_BUFFER = bytes(range(256)) * 1024
SIZE = len(_BUFFER)
# What every machine of the world makes of it.
DIGEST = "2312394bd99545d9de131c24efb781e765ac1aec243f2ed9347597a793a415e9"

_ROW = struct.Struct("<QdQ")  # tries, the best one's seconds, wrong digests


def measure(cpus: Path = each_core.CPUS) -> dict[str, Any]:
    """Of every core that this process may use.

    bytes   that a try works through
    cores   `cpu`, and `alone` and `together`: how many tries, the seconds of the best one, and how
            many came out wrong
    Raises CannotRun where a process did not end well.
    """
    allowed = os.sched_getaffinity(0)
    cores = each_core.one_of_each(allowed, cpus)
    alone = []
    try:
        for cpu in cores:
            os.sched_setaffinity(0, {cpu})
            alone.append(_tried(ALONE_S))
    finally:
        os.sched_setaffinity(0, allowed)
    together = each_core.run(cores, _ROW, lambda: lambda: _tried(TOGETHER_S))
    return {
        "bytes": SIZE,
        "cores": [
            {"cpu": cpu, "alone": _named(one), "together": _named(other)}
            for cpu, one, other in zip(cores, alone, together, strict=True)
        ],
    }


def _tried(seconds: float) -> each_core.Row:
    tries, wrong, best = 0, 0, float("inf")
    end = time.perf_counter() + seconds
    while tries < FEWEST or time.perf_counter() < end:
        begin = time.perf_counter()
        digest = hashlib.sha256(_BUFFER, usedforsecurity=False).hexdigest()
        best = min(best, time.perf_counter() - begin)
        wrong += digest != DIGEST
        tries += 1
    return tries, best, wrong


def _named(row: each_core.Row) -> dict[str, Any]:
    tries, best, wrong = row
    return {"tries": tries, "best_s": best, "wrong": wrong}
