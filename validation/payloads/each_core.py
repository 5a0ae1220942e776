"""One process for each core, bound to it; all prepare, then all begin at once."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from validation.payloads.config import require

CPUS = Path("/sys/devices/system/cpu")

Row = tuple[Any, ...]
Prepare = Callable[[], Callable[[], Row]]


def run(cores: Sequence[int], row: struct.Struct, prepare: Prepare) -> list[Row]:
    """What the work of each core came to, as `row` packs it.

    `prepare` runs in the core's process and returns the work. Raises CannotRun where a process did
    not end well.
    """
    table = mmap.mmap(-1, row.size * len(cores))
    ready, tell = os.pipe()
    wait, go = os.pipe()
    processes = []
    for number, cpu in enumerate(cores):
        process = os.fork()
        if process == 0:
            os.close(go)
            _work(cpu, prepare, (ready, tell, wait), table, row, number)
        processes.append(process)
    os.close(tell)
    os.close(wait)
    prepared = 0
    while signals := os.read(ready, 4096):  # ends when all are ready, or gone
        prepared += len(signals)
    os.close(ready)
    os.close(go)
    statuses = [os.waitpid(process, 0)[1] for process in processes]
    require(prepared == len(cores) and not any(statuses), _why(cores, statuses))
    return [row.unpack_from(table, row.size * number) for number in range(len(cores))]


def _work(
    cpu: int,
    prepare: Prepare,
    pipes: tuple[int, int, int],
    table: mmap.mmap,
    row: struct.Struct,
    number: int,
) -> NoReturn:
    status = 1
    try:
        ready, tell, wait = pipes
        os.close(ready)
        os.sched_setaffinity(0, {cpu})
        work = prepare()
        os.write(tell, b".")
        os.close(tell)
        os.read(wait, 1)  # ends when all may begin
        row.pack_into(table, row.size * number, *work())
        status = 0
    finally:
        os._exit(status)


def _why(cores: Sequence[int], statuses: Sequence[int]) -> str:
    bad = [(cpu, status) for cpu, status in zip(cores, statuses, strict=True) if status]
    if not bad:
        return "not all processes began"
    cpu, status = bad[0]
    code = os.waitstatus_to_exitcode(status)
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    return f"{len(bad)} of {len(cores)} processes did not end well, on CPU {cpu} with {how}"


def one_of_each(allowed: set[int], cpus: Path = CPUS) -> list[int]:
    """Of the allowed CPUs the first of each core: its threads share what it has."""
    by_core: dict[str, int] = {}
    for cpu in sorted(allowed):
        siblings = str(cpu)
        with suppress(OSError):
            path = cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list"
            siblings = path.read_text(encoding="ascii").strip()
        by_core.setdefault(siblings, cpu)
    return list(by_core.values())
