"""What a month's jobs were given and what came of it, summed up by account and user.

One row of accounting at a time: what is kept grows with accounts and users, not with jobs.

GPU-hours are those that Slurm had allocated: for nobody else, whatever became of them.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from cluster.slurm import outages
from cluster.slurm.job_outcomes import OUTCOMES, outcome
from cluster.slurm.outages import Event
from cluster.slurm.times import parsed
from cluster.text import printable
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.files.job_report.sacct import duration, energy, tres

MONTH = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])")


@dataclass(frozen=True)
class Span:
    """Seconds since the epoch: from `begin` to before `end`."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def overlap(self, begin: float, end: float) -> float:
        return max(0.0, min(self.end, end) - max(self.begin, begin))


def days(month: str, now: float) -> tuple[Span, ...]:
    """The days of "2026-10" here, as far as they have come. Raises NotKnown."""
    match = MONTH.fullmatch(month)
    if match is None:
        raise NotKnown(f"{printable(month, 40)!r} is no month; write it as 2026-10.")
    year, number = int(match[1]), int(match[2])
    first = datetime(year, number, 1)
    starts = [
        (first + timedelta(days=day)).timestamp()
        for day in range(calendar.monthrange(year, number)[1] + 1)
    ]
    spans = [Span(a, min(b, now)) for a, b in pairwise(starts) if a < now]
    if not spans:
        raise NotKnown(f"{month} has not begun.")
    return tuple(spans)


@dataclass
class Sums:
    """Hours, and jobs that ended. cpu_counted: CPU-hours of jobs whose use Slurm counted;
    metered: whether energy_kwh is of any job at all.
    """

    jobs: int = 0
    given: dict[str, float] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0.0))
    cpu_given: float = 0.0
    cpu_counted: float = 0.0
    cpu_used: float = 0.0
    energy_kwh: float = 0.0
    metered: bool = False

    @property
    def gpu_hours(self) -> float:
        return sum(self.given.values())

    @property
    def wasted(self) -> float:
        return self.given["failed"] + self.given["lost"]

    @property
    def cpu_efficiency(self) -> float | None:
        return self.cpu_used / self.cpu_counted if self.cpu_counted else None

    def add(self, other: Sums) -> None:
        self.jobs += other.jobs
        for name in OUTCOMES:
            self.given[name] += other.given[name]
        self.cpu_given += other.cpu_given
        self.cpu_counted += other.cpu_counted
        self.cpu_used += other.cpu_used
        self.energy_kwh += other.energy_kwh
        self.metered |= other.metered


By = tuple[str, str]  # account and user


def count(rows: Iterable[Mapping[str, str]], span: Span, sums: dict[By, Sums]) -> None:
    """Adds what of these rows' jobs lies in the span; a job of many days is in many spans.

    Whatever Slurm counts of the whole job is divided by time.
    """
    for row in rows:
        begin = parsed(row["Start"])
        if begin is None:
            continue
        ended = parsed(row["End"])
        end = span.end if ended is None else ended
        inside = span.overlap(begin, end)
        ends_here = ended is not None and span.begin <= ended < span.end
        if not inside and not ends_here:
            continue
        part = inside / (end - begin) if end > begin else 1.0
        # Of one that was suspended less than the time between the two.
        until_now = inside if ended is None else part * float(row["ElapsedRaw"] or 0)
        hours = min(inside, until_now) / 3600
        by = (printable(row["Account"], 80), printable(row["User"], 80))
        if (mine := sums.get(by)) is None:
            mine = sums[by] = Sums()
        mine.jobs += ends_here
        mine.given[outcome(row["State"])] += hours * int(
            tres(row["AllocTRES"]).get("gres/gpu", "0")
        )
        cpus = hours * int(row["AllocCPUS"] or 0)
        mine.cpu_given += cpus
        if ended is not None and (used := duration(row["TotalCPU"])):
            mine.cpu_counted += cpus
            mine.cpu_used += part * used / 3600
        if ended is not None and (joules := energy(row["ConsumedEnergyRaw"])):
            mine.energy_kwh += part * joules / 3.6e6
            mine.metered = True


# --- nodes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeMonth:
    """planned: out for maintenance, power saving or a playbook's reboot.

    interruptions   outages that a fault began, as the ledger of the Slurm exporter counts them
    """

    node: str
    down_h: float
    planned_h: float
    interruptions: int
    last_reason: str

    def availability(self, hours: float) -> float:
        return max(0.0, 1 - self.down_h / hours) if hours else 1.0


def nodes(events: Iterable[Event], span: Span, known: Iterable[str]) -> tuple[NodeMonth, ...]:
    """The worst first; nodes of which there is no event as well."""
    found: dict[str, list[Event]] = {name: [] for name in known}
    for event in events:
        found.setdefault(event.node, []).append(event)
    return tuple(
        sorted(
            (_node(name, each, span) for name, each in found.items()),
            key=lambda node: (-node.down_h, -node.interruptions, node.node),
        )
    )


def _node(name: str, events: Iterable[Event], span: Span) -> NodeMonth:
    in_order = sorted(events, key=lambda event: event.begin)
    planned = down = 0.0
    for event in in_order:
        hours = span.overlap(event.begin, event.end or span.end) / 3600
        if event.kind == outages.PLANNED:
            planned += hours
        else:
            down += hours
    faults = [
        event
        for event in outages.first_events(in_order)
        if event.kind in outages.FAULTS and span.begin <= event.begin < span.end
    ]
    reasons = [event.reason for event in faults if event.reason]
    return NodeMonth(name, down, planned, len(faults), reasons[-1] if reasons else "")


# --- the report ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Month:
    """capacity_h: GPU-hours that there were, None where Slurm does not say; not_known: sentences
    of what could not be asked.
    """

    name: str
    span: Span
    whole: bool
    by: Mapping[By, Sums]
    nodes: tuple[NodeMonth, ...]
    capacity_h: float | None
    not_known: tuple[str, ...]

    @property
    def total(self) -> Sums:
        return _sum(self.by.values())

    @property
    def availability(self) -> float | None:
        """Of all nodes, by time; without the hours of maintenance that was planned."""
        hours = self.span.seconds / 3600 * len(self.nodes)
        planned = sum(node.planned_h for node in self.nodes)
        down = sum(node.down_h for node in self.nodes)
        return max(0.0, 1 - down / (hours - planned)) if hours > planned else None

    @property
    def between_interruptions_h(self) -> float | None:
        """Node-hours in service for each interruption: MTBI of a node."""
        hours = self.span.seconds / 3600 * len(self.nodes)
        out = sum(node.down_h + node.planned_h for node in self.nodes)
        count = sum(node.interruptions for node in self.nodes)
        return (hours - out) / count if count else None

    def accounts(self) -> Iterator[tuple[str, Sums]]:
        """The most GPU-hours first, then CPU-hours."""
        found: dict[str, Sums] = {}
        for (account, _), sums in self.by.items():
            found.setdefault(account, Sums()).add(sums)
        yield from sorted(found.items(), key=lambda item: _order(item[1]))

    def users(self) -> Iterator[tuple[By, Sums]]:
        yield from sorted(self.by.items(), key=lambda item: _order(item[1]))


def _order(sums: Sums) -> tuple[float, float]:
    return -sums.gpu_hours, -sums.cpu_given


def _sum(each: Iterable[Sums]) -> Sums:
    total = Sums()
    for sums in each:
        total.add(sums)
    return total
