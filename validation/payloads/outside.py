"""How many CPUs of a node are used by processes that Slurm did not start.

Slurm keeps its daemons and jobs in control groups with `slurm` in their path (slurmd.service,
slurmstepd.scope, slurm/uid_…). What runs elsewhere takes CPUs away from jobs, and Slurm does not
know of it. Where this process itself is in no such group, or others cannot be seen, nothing can be
told. Threads of the kernel are left out.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SECONDS = 0.5  # between two looks
_KTHREADD = 2


@dataclass(frozen=True)
class Outside:
    """cpus: how many of them on average; largest: the command that took most, "" without one."""

    cpus: float
    largest: str


@dataclass(frozen=True)
class _Process:
    command: str
    ticks: int


def measure(
    proc: Path = Path("/proc"),
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any] | None:
    """An Outside, or None where it cannot be told."""
    if not _of_slurm(proc / "self"):
        return None
    before, begin = _processes(proc), clock()
    wait(SECONDS)
    after, seconds = _processes(proc), clock() - begin
    used: Counter[str] = Counter()
    for pid, process in after.items():
        if pid in before and before[pid].command == process.command:
            used[process.command] += max(0, process.ticks - before[pid].ticks)
    busy = used.total()
    largest = used.most_common(1)[0][0] if busy else ""
    return asdict(Outside(round(busy / os.sysconf("SC_CLK_TCK") / seconds, 2), largest))


def _processes(proc: Path) -> dict[int, _Process]:
    """Processes outside of Slurm's groups. What ended meanwhile, or is hidden, is left out."""
    found = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):
            # proc(5): pid (command) state ppid …, utime and stime are the 14th and 15th field.
            start, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
            fields = rest.split()
            pid, parent = int(folder.name), int(fields[1])
            if _KTHREADD not in (pid, parent) and not _of_slurm(folder):
                command = start.partition("(")[2]
                found[pid] = _Process(command, int(fields[11]) + int(fields[12]))
    return found


def _of_slurm(folder: Path) -> bool:
    try:
        return "slurm" in (folder / "cgroup").read_text(errors="replace")
    except OSError:
        return False
