"""What sinfo, squeue and scontrol say, as lines of the message.

Names are chosen by people; they are shown as text.
"""

from __future__ import annotations

import time
from collections import namedtuple
from collections.abc import Iterator, Sequence

from cluster.text import printable

SINFO = (
    "sinfo",
    "--noheader",
    "--Node",
    "--Format=PartitionName:64 ,StateLong:24 ,Gres:256 ,GresUsed:256 ,Time:24 ",
)
SQUEUE = (
    "squeue", "--me", "--noheader", "--array", "--states=running,pending", "--Format=StateCompact:8"
)  # fmt: skip
RESERVATIONS = ("scontrol", "--oneliner", "show", "reservation")
_COLUMNS = 5
_NODES = 60  # letters of a list of nodes


class _Partition:
    def __init__(self, limit: str) -> None:
        self.limit = limit
        self.nodes = self.idle = self.gpus = self.free = 0


def partitions(said: str) -> Iterator[str]:
    of: dict[str, _Partition] = {}
    for line in said.splitlines():
        cells = line.split()
        if len(cells) != _COLUMNS:
            continue
        name, state, gres, used, limit = cells
        partition = of.setdefault(printable(name, 40), _Partition(printable(limit, 16)))
        partition.nodes += 1
        partition.gpus += _gpus(gres)
        partition.idle += state == "idle"
        if state in ("idle", "mixed"):
            partition.free += _gpus(gres) - _gpus(used)
    if of:
        yield _row("Partition", "Idle nodes", "Free GPUs", "Time limit")
    for name, partition in of.items():
        free = f"{partition.free} of {partition.gpus}" if partition.gpus else "-"
        yield _row(name, f"{partition.idle} of {partition.nodes}", free, partition.limit)


def _row(*cells: str) -> str:
    return " ".join(cell.ljust(16) for cell in cells).rstrip()


def _gpus(gres: str) -> int:
    """Of a list such as gpu:h100:8(S:0-1),nvme:1."""
    first, *others = gres.split("(")
    outside = first + "".join(part.partition(")")[2] for part in others)
    entries = (entry for entry in outside.split(",") if entry.startswith("gpu:"))
    counts = (entry.rsplit(":", 1)[-1] for entry in entries)
    return sum(int(count) for count in counts if count.isdecimal())


def jobs(said: str) -> str:
    states = said.split()
    return f"Your jobs: {states.count('R')} running, {states.count('PD')} waiting"


class Maintenance(namedtuple("Maintenance", ("nodes", "start", "end"))):
    """start and end are seconds since the epoch."""


def maintenance(said: str, now: float, days: float) -> list[Maintenance]:
    """Reservations for maintenance that are there, or begin within so many days, in their order.

    With SLURM_TIME_FORMAT=%s.
    """
    found = filter(None, map(_reservation, said.splitlines()))
    soon = (one for one in found if one.end > now and one.start < now + days * 86400)
    return sorted(soon, key=lambda one: (one.start, one.nodes))


def _reservation(line: str) -> Maintenance | None:
    known = line.split(" Comment=", maxsplit=1)[0]  # people's own words
    pairs = (word.partition("=") for word in known.split(" "))
    keys = {key: value for key, _, value in pairs}
    flags = frozenset(keys.get("Flags", "").split(","))
    times = keys.get("StartTime", ""), keys.get("EndTime", "")
    if "MAINT" not in flags or not all(moment.isdecimal() for moment in times):
        return None
    nodes = "all nodes" if "ALL_NODES" in flags else printable(keys.get("Nodes", ""), _NODES)
    return Maintenance(nodes, float(times[0]), float(times[1]))


def sentences(reservations: Sequence[Maintenance], now: float) -> Iterator[str]:
    for one in reservations:
        end = _moment(one.end)
        if one.start <= now:
            yield f"Maintenance of {one.nodes} until {end}: no job starts there before."
            continue
        left = int(one.start - now) // 60
        most = f"{left // 1440}-{left // 60 % 24:02}:{left % 60:02}"
        yield (
            f"Maintenance of {one.nodes} from {_moment(one.start)} to {end}: a job whose time "
            f"limit reaches into it waits until it is over; --time={most} still starts before."
        )


def _moment(seconds: float) -> str:
    return time.strftime("%a %Y-%m-%d %H:%M", time.localtime(seconds))
