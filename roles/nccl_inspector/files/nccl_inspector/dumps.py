"""What NCCL's inspector writes: one JSON object a line, one for each collective.

Its form is that of NVIDIA/nccl, ext-profiler/inspector (2.28; format v4.0) and
plugins/profiler/inspector/inspector_json.cc (2.30; v4.2). Before v4.2 a file has the last
collective of each communicator and interval, since then all that fit into a ring, and a record
`dump_stats` that tells how many were lost.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST = 65536  # of a line; with event traces of 64 channels it has about 20,000 bytes
MOST_RANKS = 1_000_000
LONGEST_S = 3600.0  # of one collective
MOST_GBS = 100_000.0
# ncclFuncToString of inspector.cc, less what goes between two ranks.
COLLECTIVES = ("AllGather", "AllReduce", "AlltoAll", "Broadcast", "Gather", "Reduce",
               "ReduceScatter", "Scatter")  # fmt: skip
_COMMUNICATOR = re.compile(r"0x[0-9a-f]{1,16}")


@dataclass(frozen=True)
class Collective:
    """One that a rank has done."""

    communicator: str
    rank: int
    name: str
    bytes: int
    seconds: float
    bus_bytes_per_s: float


@dataclass(frozen=True)
class Lost:
    """Collectives of a communicator that the inspector had no room for, since it began."""

    communicator: str
    rank: int
    total: int


class Unreadable(ValueError):
    """The line is none of the inspector's."""


def parse(line: bytes) -> Collective | Lost | None:
    """None for what tells of other things, as of a message between two ranks. Raises Unreadable."""
    if len(line) > LONGEST:
        raise Unreadable
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise Unreadable
        if "coll_perf" in document:
            return _collective(document["header"], document["coll_perf"])
        if "dump_stats" in document:
            return _lost(document["header"], document["dump_stats"])
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise Unreadable from None
    if "header" not in document:
        raise Unreadable
    return None


def _collective(header: Mapping[str, Any], values: Mapping[str, Any]) -> Collective | None:
    name = values["coll"]
    if name not in COLLECTIVES:
        return None
    microseconds = _number(values["coll_exec_time_us"], LONGEST_S * 1e6)
    if microseconds == 0:  # not timed
        return None
    return Collective(
        *_who(header),
        name,
        int(_number(values["coll_msg_size_bytes"], 2**50)),
        microseconds / 1e6,
        _number(values["coll_busbw_gbs"], MOST_GBS) * 1e9,
    )


def _lost(header: Mapping[str, Any], values: Mapping[str, Any]) -> Lost:
    return Lost(*_who(header), int(_number(values["coll_dropped_total"], 2**50)))


def _who(header: Mapping[str, Any]) -> tuple[str, int]:
    communicator, rank = header["id"], int(_number(header["rank"], MOST_RANKS))
    if not _COMMUNICATOR.fullmatch(communicator) or rank >= _number(header["n_ranks"], MOST_RANKS):
        raise Unreadable
    return communicator, rank


def _number(value: object, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unreadable
    if not math.isfinite(value) or not 0 <= value <= most:
        raise Unreadable
    return value
