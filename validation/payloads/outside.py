"""How many CPUs of a node are asked for by processes that Slurm did not start, and by which.

Slurm keeps its daemons and jobs in control groups with `slurm` in their path (slurmd.service,
slurmstepd.scope, slurm/uid_…). Where this process itself is in no such group, a process is Slurm's
if one that it descends from is slurmd or slurmstepd; where this process is not even that, nothing
can be told. What runs elsewhere takes CPUs away from jobs, and Slurm does not know of it. Threads
of the kernel are left out.

A thread that wants to run all the time counts as a whole CPU, even if it has to wait for one that
jobs have: the kernel keeps both times (/proc/PID/task/TID/schedstat). A node that is used looks
once, for half a second; where much is asked for, the node is looked at again and again, and the
least of it counts: a daemon that is busy for a moment is no fault.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 0.5  # between the two readings of a look
MOST_LOOKS = 6
MUCH = 1.0  # CPUs; a look that finds less ends it
_BUSY = 0.5  # a thread that is ready for so much of the time wants to run all the time
_SHOWN = 3  # processes that are told
_KTHREADD = 2
_DAEMONS = ("slurmd", "slurmstepd")


@dataclass(frozen=True)
class _Process:
    """ticks it ran, and of each thread the nanoseconds that it ran, and that it was ready to."""

    command: str
    uid: int
    ticks: int
    threads: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class _Use:
    pid: int
    command: str
    uid: int
    cpus: float  # that it used
    asked: float  # that it would have used, had nobody else been there


def measure(
    proc: Path = Path("/proc"),
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    passwd: Path = Path("/etc/passwd"),
) -> dict[str, Any] | None:
    """What was asked for in the look that found the least, or None where it cannot be told.

    cpus       used by all of them together, on average
    asked      that they would have used, had they not had to wait
    seconds    from the first look to the last
    processes  those that asked for most: pid, user, command and both numbers of each
    """
    ours = _of_group if _of_group(proc / "self") else _of_parent
    if not ours(proc / "self"):
        return None
    begin = clock()
    least = _look(proc, ours, wait, clock)
    for _ in range(MOST_LOOKS - 1):
        if _asked(least) < MUCH:
            break
        least = min(least, _look(proc, ours, wait, clock), key=_asked)
    largest = sorted(least, key=lambda use: use.asked, reverse=True)[:_SHOWN]
    names = _names(passwd)
    return {
        "cpus": round(sum(use.cpus for use in least), 2),
        "asked": round(_asked(least), 2),
        "seconds": round(clock() - begin, 2),
        "processes": [
            {
                "pid": use.pid,
                "user": names.get(use.uid, f"uid {use.uid}"),
                "command": use.command,
                "cpus": round(use.cpus, 2),
                "asked": round(use.asked, 2),
            }
            for use in largest
            if use.asked > 0
        ],
    }


def _asked(uses: list[_Use]) -> float:
    return sum(use.asked for use in uses)


def _look(
    proc: Path,
    ours: Callable[[Path], bool],
    wait: Callable[[float], None],
    clock: Callable[[], float],
) -> list[_Use]:
    before, begin = dict(_processes(proc, ours)), clock()
    wait(SECONDS)
    after, seconds = dict(_processes(proc, ours)), clock() - begin
    uses = []
    for pid, process in after.items():
        old = before.get(pid)
        if old is not None and old.command == process.command:
            cpus = max(0, process.ticks - old.ticks) / os.sysconf("SC_CLK_TCK") / seconds
            asked = max(cpus, _wanted(old.threads, process.threads, seconds))
            uses.append(_Use(pid, process.command, process.uid, cpus, asked))
    return uses


def _wanted(
    before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]], seconds: float
) -> float:
    """CPUs that the threads would have used."""
    wanted = 0.0
    for name, (ran, ready) in after.items():
        if name in before:
            share = (ran - before[name][0]) / 1e9 / seconds
            ready_share = share + (ready - before[name][1]) / 1e9 / seconds
            wanted += min(1.0, ready_share if ready_share >= _BUSY else share)
    return wanted


def _processes(proc: Path, ours: Callable[[Path], bool]) -> Iterator[tuple[int, _Process]]:
    """Processes that are not Slurm's. What ended meanwhile, or is hidden, is left out."""
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):
            command, fields = _stat(folder)
            pid, parent = int(folder.name), int(fields[1])
            if _KTHREADD not in (pid, parent) and not ours(folder):
                ticks = int(fields[11]) + int(fields[12])
                uid = folder.stat().st_uid
                yield pid, _Process(command, uid, ticks, dict(_threads(folder)))


def _stat(folder: Path) -> tuple[str, list[str]]:
    # proc(5): pid (command) state ppid …, utime and stime are the 14th and 15th field.
    start, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
    return start.partition("(")[2], rest.split()


def _threads(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Of a kernel without these times there are none."""
    with suppress(OSError):
        for thread in (folder / "task").iterdir():
            with suppress(OSError, ValueError):
                ran, ready = (thread / "schedstat").read_text().split()[:2]
                yield thread.name, (int(ran), int(ready))


def _of_group(folder: Path) -> bool:
    try:
        return "slurm" in (folder / "cgroup").read_text(errors="replace")
    except OSError:
        return False


def _of_parent(folder: Path) -> bool:
    """Whether it is one of Slurm's daemons, or descends from one."""
    with suppress(OSError, ValueError, IndexError):
        for _ in range(64):  # a process whose parent changes meanwhile could go round for ever
            command, fields = _stat(folder)
            if command in _DAEMONS:
                return True
            parent = int(fields[1])
            if parent in (0, 1):
                return False
            folder = folder.parent / str(parent)
    return False


def _names(passwd: Path) -> dict[int, str]:
    """Of the node's own users. A directory of users may not answer, and is not asked."""
    names: dict[int, str] = {}
    with suppress(OSError, ValueError, IndexError):
        for line in passwd.read_text(encoding="utf-8", errors="replace").splitlines():
            fields = line.split(":")
            names[int(fields[2])] = fields[0]
    return names
