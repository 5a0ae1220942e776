"""A month of Slurm's accounting, a day at a time.

sacct and slurmdbd hold all that one question asks for in memory, and a large site has a million
jobs in a month: so each day is a question, read row by row. What a user chooses, a job's name, is
not asked for, so no row has more lines than one.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from cluster import processes
from cluster.slurm import outages
from cluster.slurm.outages import Event
from cluster.slurm.times import moment
from cluster.text import printable
from roles.job_report.files.job_report import month
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.files.job_report.sacct import SEPARATOR

DAY_LIMIT_S = 900.0  # for the jobs of one day
LIMIT_S = 120.0
COLUMNS = (
    "JobIDRaw",
    "Account",
    "User",
    "State",
    "Start",
    "End",
    "ElapsedRaw",
    "AllocCPUS",
    "AllocTRES",
    "TotalCPU",
    "ConsumedEnergyRaw",
)


def read(name: str) -> month.Month:
    """Raises NotKnown where accounting does not tell of jobs; of the rest a sentence is kept."""
    now = time.time()
    days = month.days(name, now)
    span = month.Span(days[0].begin, days[-1].end)
    sums: dict[month.By, month.Sums] = {}
    for day in days:
        month.count(jobs(day), day, sums)
    missing: list[str] = []
    nodes: tuple[month.NodeMonth, ...] = ()
    capacity = None
    try:
        nodes = month.nodes(events(span), span, node_names())
    except NotKnown as error:
        missing.append(f"Nodes: {error}")
    try:
        capacity = gpu_capacity_h(span)
    except NotKnown as error:
        missing.append(f"GPU-hours that there were: {error}")
    whole = span.end < now
    return month.Month(name, span, whole, sums, nodes, capacity, tuple(missing))


def jobs(day: month.Span) -> Iterator[Mapping[str, str]]:
    """Jobs that ran on this day, requeued ones each time. Steps are passed over."""
    command = (
        *("sacct", "--allusers", "--duplicates", "--noheader", "--parsable2"),
        f"--delimiter={SEPARATOR}",
        f"--format={','.join(COLUMNS)}",
        f"--starttime={moment(day.begin)}",
        f"--endtime={moment(day.end)}",
    )
    for line in lines(command, DAY_LIMIT_S):
        job, _, _ = line.partition(SEPARATOR)
        if "." in job or not line.strip():
            continue
        cells = line.split(SEPARATOR)
        if len(cells) != len(COLUMNS):
            raise NotKnown(f"sacct says {len(cells)} columns where {len(COLUMNS)} were asked for.")
        yield dict(zip(COLUMNS, cells, strict=True))


def events(span: month.Span) -> list[Event]:
    try:
        return list(outages.events(_run(outages.question(span.begin, span.end))))
    except ValueError as error:
        raise NotKnown(f"sacctmgr cannot be read: {error}.") from None


def node_names() -> list[str]:
    return sorted(set(_run(("sinfo", "--noheader", "--Node", "--format=%N")).split()))


def gpu_capacity_h(span: month.Span) -> float | None:
    """None where no GPUs are accounted (AccountingStorageTRES)."""
    command = (
        *("sreport", "--noheader", "--parsable2", "-t", "Hours", "--tres=gres/gpu"),
        *("cluster", "utilization", f"start={moment(span.begin)}", f"end={moment(span.end)}"),
        "format=TresName,Reported",
    )
    for line in _run(command).splitlines():
        name, _, hours = line.partition("|")
        if name == "gres/gpu" and hours.isdigit():
            return float(hours)
    return None


def _environment() -> dict[str, str]:
    return {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


def _run(command: Sequence[str]) -> str:
    try:
        return processes.run(command, LIMIT_S, environment=_environment()).stdout
    except processes.CommandFailed as error:
        raise NotKnown(f"{str(error).rstrip('.')}.") from None


def lines(command: Sequence[str], limit_s: float) -> Iterator[str]:
    """Line by line, so that nobody holds all of them. Raises NotKnown."""
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=_environment(),
            )
        except OSError as error:
            raise NotKnown(f"{command[0]} cannot be started: {error.strerror}.") from None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit_s, end)
        timer.daemon = True
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield line.decode(errors="replace").rstrip("\n")
            status = process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.wait()
            process.stdout and process.stdout.close()
        if late.is_set():
            raise NotKnown(f"{command[0]} did not tell a day's jobs within {limit_s:g} s.")
        if status:
            complaints.seek(0)
            said = printable(complaints.read(4096).decode(errors="replace"), 300)
            raise NotKnown(f"{command[0]} ended with exit status {status}: {said}.")
