"""nccl-tests on the GPUs of one node, where it is installed: a second figure beside our own.

A build of nccl-tests for several nodes needs the MPI that it was built with, so each node runs it
by itself, with one process for all of its GPUs (`-g`), and nothing of Slurm or MPI in its
environment: a build with MPI then is a job of one process too.

Its table on standard output is read, which names every GPU (src/util.cu of NVIDIA/nccl-tests; its
JSON names one for each process) and is the same in all releases since 2.10 (13 columns). What does
not have this form, or ran on other GPUs than were asked for, is no figure; the reason is told.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster.processes import CommandFailed, run
from cluster.text import printable

# Where it is installed by custom, beside PATH: by the images of Azure and AWS for one.
FOLDERS = ("/opt/nccl-tests/build", "/opt/nccl-tests/bin", "/usr/local/nccl-tests/build")
PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "broadcast": "broadcast_perf",
    "sendrecv": "sendrecv_perf",
}
_LAUNCHERS = ("SLURM_", "PMI_", "PMIX_", "PRTE_", "OMPI_", "MPI_", "NCCL_DEBUG")

_GPUS = re.compile(r"# *nThread ([0-9]{1,4}) nGpus ([0-9]{1,4}) ")
_RANK = re.compile(r"# +Rank +([0-9]{1,6}) .*device +([0-9]{1,4}) \[.*")
_BOUNDS = re.compile(r"# Out of bounds values *: *([0-9]{1,18}) (?:OK|FAILED)")
_COLUMNS = 13
_LONGEST = 200  # of a reason


@dataclass(frozen=True)
class Figures:
    """GB/s of bus bandwidth out of place and in place, and how many elements were wrong.

    error says why there are none, as a clause; the figures are 0 then.
    """

    operation: str
    busbw_gbs: float = 0.0
    in_place_busbw_gbs: float = 0.0
    wrong: int = 0
    error: str | None = None


class NotUnderstood(Exception):
    """A clause: what of the table is not as it should be."""


def installed(operations: tuple[str, ...], path: str | None = None) -> dict[str, str]:
    """The program of each operation, of those that this node has."""
    places = os.pathsep.join([path or os.environ.get("PATH", ""), *FOLDERS])
    found = {name: shutil.which(PROGRAMS[name], path=places) for name in operations}
    return {name: program for name, program in found.items() if program}


def measure(
    programs: Mapping[str, str], gpus: int, size: int, limit_s: float
) -> list[dict[str, Any]]:
    """Figures of each program at one size in bytes, all together within the limit in seconds."""
    end = time.monotonic() + limit_s
    rows = []
    for operation, program in programs.items():
        left = end - time.monotonic()
        if left < 1:
            rows.append(Figures(operation, error=f"no time was left of {limit_s:g} s"))
        else:
            rows.append(_measured(operation, program, gpus, size, left))
    return [asdict(row) for row in rows]


def _measured(operation: str, program: str, gpus: int, size: int, limit_s: float) -> Figures:
    command = [program, "-g", str(gpus), "-b", str(size), "-e", str(size), "-c", "1"]
    own = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
    try:
        # It ends with another status where elements were wrong, and says so in its table.
        done = run(command, limit_s, environment={**own, "LC_ALL": "C"}, any_status=True)
    except CommandFailed as problem:
        return Figures(operation, error=str(problem).replace(program, Path(program).name))
    try:
        return parsed(operation, done.stdout, gpus, size)
    except NotUnderstood as problem:
        told = str(problem)
        if done.status != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            told = f"it ended with exit status {done.status}: {lines[-1] if lines else told}"
        return Figures(operation, error=printable(told, _LONGEST))


def parsed(operation: str, text: str, gpus: int, size: int) -> Figures:
    """The figures of a table. Raises NotUnderstood unless it is of these GPUs and this size."""
    lines = text.splitlines()
    counts = [match for line in lines if (match := _GPUS.match(line))]
    if len(counts) != 1 or int(counts[0][1]) * int(counts[0][2]) != gpus:
        raise NotUnderstood(f"it does not say that it used {gpus} GPUs in one process")
    ranks = [match for line in lines if (match := _RANK.fullmatch(line))]
    devices = {match[2] for match in ranks}
    if [int(match[1]) for match in ranks] != list(range(gpus)) or len(devices) != gpus:
        raise NotUnderstood(f"it lists {len(ranks)} ranks on {len(devices)} GPUs, not {gpus}")
    bounds = [match for line in lines if (match := _BOUNDS.match(line))]
    if len(bounds) != 1:
        raise NotUnderstood("it does not say how many values are out of bounds")
    rows = list(_rows(lines))
    if len(rows) != 1:
        raise NotUnderstood(f"its table has {len(rows)} lines, not one")
    (row,) = rows
    if len(row) != _COLUMNS:
        raise NotUnderstood(f"its table has {len(row)} columns, not {_COLUMNS}")
    if int(row[0]) != size:
        raise NotUnderstood(f"it moved {row[0]} bytes, not {size}")
    wrong = max(int(bounds[0][1]), _count(row[8]) + _count(row[12]))
    return Figures(operation, _speed(row[7]), _speed(row[11]), wrong)


def _rows(lines: list[str]) -> Iterator[list[str]]:
    """The lines of the table: all others that it prints begin with #, or are another's."""
    for line in lines:
        columns = line.split()
        if columns and columns[0].isdecimal():
            yield columns


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError as error:
        raise NotUnderstood(f"a bandwidth of {text!r}") from error
    if not 0 < speed < 1e6:
        raise NotUnderstood(f"a bandwidth of {text} GB/s")
    return speed


def _count(text: str) -> int:
    """Wrong elements; N/A where the operation has no such way."""
    if text == "N/A":
        return 0
    try:
        return int(float(text))
    except (ValueError, OverflowError) as error:
        raise NotUnderstood(f"{text!r} wrong elements") from error
