"""What an account's jobs asked for in a month, and what they used of it.

CPU and memory are Slurm's, of jobs that ended; GPUs' use is Prometheus', of jobs that ran. Both are
shares of what was counted alone: what nobody measured is neither used nor wasted. One row of
accounting at a time: what is kept grows with accounts, not with jobs.

    memory  the most that a step of the job had, for as long as the job ran: more than it used
    GPU     the time in which a kernel ran, however much of the GPU that took
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cluster.text import printable
from roles.job_report.files.job_report import words
from roles.job_report.files.job_report.month import Span
from roles.job_report.files.job_report.sacct import duration, size, tres

GIB = 2**30


@dataclass
class Share:
    """Hours of something: asked for, counted of these, and used of the counted."""

    asked: float = 0.0
    counted: float = 0.0
    used: float = 0.0

    @property
    def ratio(self) -> float | None:
        return words.ratio(self.used, self.counted)

    @property
    def unused(self) -> float:
        """Of what was counted."""
        return max(0.0, self.counted - self.used)


@dataclass
class Account:
    """cpu in CPU-hours, memory in GiB-hours, gpu in GPU-hours."""

    jobs: int = 0
    cpu: Share = field(default_factory=Share)
    memory: Share = field(default_factory=Share)
    gpu: Share = field(default_factory=Share)


Row = Mapping[str, str]
Job = Sequence[Row]  # its own row, and those of its steps
GpuHours = Mapping[str, tuple[float, float]]  # by account: measured, and busy


@dataclass(frozen=True)
class Accounts:
    """missing has a sentence for each thing that could not be found out."""

    month: str
    span: Span
    whole: bool
    each: Mapping[str, Account]
    missing: tuple[str, ...] = ()


def together(rows: Iterable[Row]) -> Iterator[Job]:
    """sacct writes the rows of a job's steps behind the job's."""
    job: list[Row] = []
    for row in rows:
        if "." not in row["JobID"] and job:
            yield job
            job = []
        # A step whose job is not there has nothing that it is a part of.
        if job or "." not in row["JobID"]:
            job.append(row)
    if job:
        yield job


def count(jobs: Iterable[Job], span: Span, accounts: dict[str, Account]) -> None:
    """Adds what of these jobs lies in the span; a job of many days is in many spans."""
    for row, *steps in jobs:
        begin, ended = _time(row["Start"]), _time(row["End"])
        if begin is None:
            continue
        end = span.end if ended is None else ended
        inside = span.overlap(begin, end)
        ends_here = ended is not None and span.begin <= ended < span.end
        if not inside and not ends_here:
            continue
        part = inside / (end - begin) if end > begin else 1.0
        elapsed = float(row["ElapsedRaw"] or 0)
        hours = min(inside, part * elapsed if ended is not None else inside) / 3600
        account = accounts.setdefault(printable(row["Account"], 80), Account())
        account.jobs += ends_here
        asked = tres(row["AllocTRES"])
        account.gpu.asked += hours * int(asked.get("gres/gpu", "0"))
        cpus = hours * int(row["AllocCPUS"] or 0)
        account.cpu.asked += cpus
        used = duration(row["TotalCPU"])
        if ended is not None and used:
            account.cpu.counted += cpus
            account.cpu.used += min(cpus, part * used / 3600)
        gibibytes = (size(asked.get("mem", "")) or 0) / GIB
        account.memory.asked += hours * gibibytes
        peaks = [size(tres(step["TRESUsageInTot"]).get("mem", "")) or 0 for step in steps]
        if ended is not None and gibibytes and (peak := max(peaks, default=0)):
            account.memory.counted += hours * gibibytes
            account.memory.used += hours * min(gibibytes, peak / GIB)


def measured(hours: GpuHours, accounts: dict[str, Account]) -> None:
    """Adds what Prometheus knows of the GPUs that jobs of an account had."""
    for name, (counted, busy) in hours.items():
        gpu = accounts.setdefault(printable(name, 80), Account()).gpu
        gpu.counted += counted
        gpu.used += min(counted, busy)


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def worst_first(accounts: Mapping[str, Account]) -> list[tuple[str, Account]]:
    """By what stood idle: GPUs, which are dear, then CPUs."""
    return sorted(
        accounts.items(), key=lambda item: (-item[1].gpu.unused, -item[1].cpu.unused, item[0])
    )


# --- as text, as a document ----------------------------------------------------------------------

_HEAD = (
    "account", "jobs", "GPU-h", "used", "idle GPU-h", "CPU-h", "used", "idle CPU-h",
    "GiB-h", "used",
)  # fmt: skip


def text(found: Accounts) -> str:
    return "".join(f"{line}\n" for line in _lines(found))


def _lines(found: Accounts) -> Iterator[str]:
    so_far = "" if found.whole else " so far"
    yield f"Accounts in {found.month}{so_far}: what jobs asked for, and what they used of it"
    rows = [_HEAD, *(_cells(name, account) for name, account in worst_first(found.each))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        first, *rest = (
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(("  " + first, *rest)).rstrip()
    if not found.each:
        yield "  No job ran."
    for sentence in found.missing:
        yield f"Not known: {sentence}"


def _cells(name: str, account: Account) -> tuple[str, ...]:
    def idle(share: Share) -> str:
        return f"{share.unused:.0f}" if share.counted else "?"

    return (
        name or "-",
        str(account.jobs),
        f"{account.gpu.asked:.0f}",
        words.percent(account.gpu.ratio) if account.gpu.asked else "-",
        idle(account.gpu) if account.gpu.asked else "-",
        f"{account.cpu.asked:.0f}",
        words.percent(account.cpu.ratio),
        idle(account.cpu),
        f"{account.memory.asked:.0f}",
        words.percent(account.memory.ratio),
    )


def document(found: Accounts) -> dict[str, Any]:
    def told(share: Share) -> dict[str, float | None]:
        return {**asdict(share), "ratio": share.ratio, "unused": share.unused}

    return {
        "version": 1,
        "month": found.month,
        "begin": found.span.begin,
        "end": found.span.end,
        "whole": found.whole,
        "accounts": [
            {
                "account": name,
                "jobs": account.jobs,
                "gpu_hours": told(account.gpu),
                "cpu_hours": told(account.cpu),
                "memory_gib_hours": told(account.memory),
            }
            for name, account in worst_first(found.each)
        ],
        "not_known": list(found.missing),
    }
