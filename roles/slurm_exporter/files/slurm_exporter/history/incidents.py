"""What befell a node, from what Slurm says of it now and said before. Pure functions.

What an outage is, and which kinds of it there are, says cluster/slurm/outages.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.slurm import outages
from cluster.slurm.outages import CHECK, FAULTS, QUARANTINE, VALIDATION, XID, Event
from cluster.text import printable

# What an entry may be of beside the kinds of an outage: seen in Slurm, and written down by people.
JOB, REBOOT, RETURN = ("job", "reboot", "return")
REPAIR, TICKET, NOTE = ("repair", "ticket", "note")
BY_HAND = (QUARANTINE, REPAIR, TICKET, NOTE)

_GPU = re.compile(r"\bGPU-[0-9a-fA-F-]{8,}|\bserial ([0-9A-Za-z-]+)")
_GPU_NUMBER = re.compile(r"\bGPU (\d+)\b")
_LONGEST = 300
LOG = "kernel log"  # who says what no health check did

# A job belongs to a node's fault if that came at most ten minutes before its end and five minutes
# after: arXiv 2410.21680, how failures of jobs are attributed to health checks there.
BEFORE_S, AFTER_S = 600.0, 300.0
# Two words of the same moment: slurmctld's reason and the record of it in accounting.
SAME_S = 120.0
# An XID that comes again and again is one incident in this time, and it is that of the health check
# where this drained the node for one at about the same moment.
SAME_XID_S = 86400.0
ABOUT_S = 900.0


@dataclass(frozen=True)
class Seen:
    """A node in Slurm now. Times in seconds since the epoch, None where Slurm does not say."""

    node: str
    states: frozenset[str]
    reason: str = ""
    user: str = ""
    since: float | None = None
    boot: float | None = None

    @property
    def out(self) -> bool:
        return outages.is_out(self.states)


@dataclass(frozen=True)
class Entry:
    """A line of the ledger.

    key      what makes it the same as another, so that nothing is written twice
    gpu      UUID, serial number or index, as far as it is known
    by       who says it
    outage   the node left service with it
    """

    key: str
    at: float
    node: str
    kind: str
    text: str
    gpu: str = ""
    by: str = ""
    outage: bool = False

    @property
    def interruption(self) -> bool:
        return self.outage and self.kind in FAULTS


@dataclass(frozen=True)
class Known:
    """What was seen of a node last. reason is the last that was written down of this outage."""

    node: str
    first_seen: float
    boot: float | None = None
    out: bool = False
    reason: str = ""


@dataclass(frozen=True)
class LostJob:
    """A job that Slurm ended for a node."""

    job: str
    end: float
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class LoggedXid:
    """An XID or SXID in the kernel's log of a node; gpu is the UUID, where it is known."""

    node: str
    at: float
    text: str
    gpu: str = ""


def gpu(text: str) -> str:
    """
    >>> gpu("GPU 3: XID 79")
    '3'
    >>> gpu("replaced serial 1650523001234")
    '1650523001234'
    """
    if match := _GPU.search(text):
        return match[1] or match[0]
    match = _GPU_NUMBER.search(text)
    return match[1] if match else ""


def look(
    known: Mapping[str, Known], seen: Sequence[Seen], now: float
) -> tuple[list[Entry], list[Known]]:
    """New entries, and what is now known where that is something else than before."""
    entries: list[Entry] = []
    changed: list[Known] = []
    for node in seen:
        before = known.get(node.node) or Known(node.node, now, node.boot)
        after = replace(before, out=node.out, boot=node.boot or before.boot)
        # slurmd's clock may be corrected while it runs; a boot is never within a minute of another.
        if node.boot and before.boot and node.boot > before.boot + 60:
            entries.append(_entry(node.node, node.boot, REBOOT, "booted", "slurmd"))
        elif node.boot and before.boot and abs(node.boot - before.boot) <= 60:
            after = replace(after, boot=before.boot)
        if node.out and (not before.out or _new(node.reason, before.reason)):
            what = outages.kind(node.reason, node.states, node.user)
            text = node.reason or "+".join(sorted(node.states))
            at = min(node.since or now, now)
            entries.append(_entry(node.node, at, what, text, node.user, outage=not before.out))
            after = replace(after, reason=node.reason)
        elif before.out and not node.out:
            entries.append(
                _entry(node.node, now, RETURN, before.reason and f"after: {before.reason}")
            )
            after = replace(after, reason="")
        if after != known.get(node.node):
            changed.append(after)
    return entries, changed


def _new(reason: str, before: str) -> bool:
    """A longer list of the same health check is not another incident."""
    return bool(reason) and reason != before and _stem(reason) != _stem(before)


def _stem(reason: str) -> str:
    return re.sub(r" \((and|since) .*", "", reason)


def missed(
    events: Iterable[Event], entries: Sequence[Entry], first_seen: Mapping[str, float]
) -> Iterator[Entry]:
    """Outages that began and ended while nobody looked, of nodes that are known."""
    begun: dict[str, list[float]] = {}
    ends: dict[str, list[float]] = {}
    for entry in entries:
        if entry.outage:
            begun.setdefault(entry.node, []).append(entry.at)
        elif entry.kind == RETURN:
            ends.setdefault(entry.node, []).append(entry.at)
    for event in events:
        if event.node not in first_seen or event.end is None or not event.states & outages.OUT:
            continue
        if any(_within(event, at, ends.get(event.node, ())) for at in begun.get(event.node, ())):
            continue
        begun.setdefault(event.node, []).append(event.begin)
        ends.setdefault(event.node, []).append(event.end)
        text = event.reason or "+".join(sorted(event.states))
        yield _entry(event.node, event.begin, event.kind, text, event.user, outage=True)
        yield _entry(event.node, event.end, RETURN, f"after: {text}")


def _within(event: Event, begun: float, ends: Iterable[float]) -> bool:
    """Whether the event is of the outage that began then."""
    over = min((end for end in ends if end >= begun), default=float("inf"))
    return begun - SAME_S <= event.begin <= over


def jobs(lost: Iterable[LostJob], entries: Iterable[Entry]) -> Iterator[Entry]:
    """Each job at the node that ended it: its only one, or those that had a fault at that time."""
    faults: dict[str, list[float]] = {}
    for entry in entries:
        if entry.kind in FAULTS:
            faults.setdefault(entry.node, []).append(entry.at)
    for job in lost:
        for node in job.nodes:
            near = any(job.end - BEFORE_S <= at <= job.end + AFTER_S for at in faults.get(node, ()))
            if near or len(job.nodes) == 1:
                size = "" if len(job.nodes) == 1 else f" of {len(job.nodes)} nodes"
                found = _entry(node, job.end, JOB, f"job {job.job}{size} ended with NODE_FAIL")
                yield replace(found, key=f"{node}|{JOB}|{job.job}|{int(job.end)}")


def xids(
    logged: Iterable[LoggedXid], entries: Iterable[Entry], first_seen: Mapping[str, float]
) -> Iterator[Entry]:
    """Those that are in no entry yet, of nodes that are known."""
    recorded = [entry for entry in entries if entry.kind == XID]
    for xid in sorted(logged, key=lambda xid: xid.at):
        known = xid.at >= first_seen.get(xid.node, float("inf"))
        if known and not any(_says(entry, xid) for entry in recorded):
            new = replace(_entry(xid.node, xid.at, XID, xid.text, LOG), gpu=xid.gpu)
            recorded.append(new)
            yield new


def _says(entry: Entry, xid: LoggedXid) -> bool:
    """Whether the entry is of this XID."""
    if entry.node != xid.node:
        return False
    apart = abs(entry.at - xid.at)
    if entry.text == xid.text:
        return apart < SAME_XID_S
    if entry.by == LOG:
        return False
    # Of a health check: at about the same moment, or later, for a site may let it look seldom.
    other = entry.gpu and xid.gpu and entry.gpu != xid.gpu and not entry.gpu.isdigit()
    same = not other and outages.xid(entry.text) == outages.xid(xid.text)
    return apart <= (SAME_XID_S if same else ABOUT_S)


def by_hand(node: str, at: float, what: str, text: str, gpu_id: str, by: str) -> Entry:
    found = _entry(node, at, what, text, by)
    return replace(found, gpu=printable(gpu_id, 80) or found.gpu)


def _entry(
    node: str, at: float, what: str, text: str, by: str = "", *, outage: bool = False
) -> Entry:
    line = printable(text, _LONGEST)
    key = f"{node}|{what}|{int(at)}|{line}"
    found = gpu(line) if what in (XID, CHECK, VALIDATION, *BY_HAND) else ""
    return Entry(key, at, node, what, line, found, printable(by, 80), outage)
