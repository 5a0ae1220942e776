"""How often nodes fail, and which of them more often than chance lets them. Pure functions.

"Revisiting Reliability in Large-Scale Machine Learning Research Clusters" (arXiv 2410.21680) counts
failures by node-days in service, MTTF of n nodes = 1 / (n · r_f), and found r_f = 6.50 and 2.34
for 1,000 node-days in two clusters. Of its signals of a "lemon", a node that fails again and again,
over 28 days, these are counted:

    out_count         times that the node was taken out of service, by whomever
    xid_cnt           XIDs that took it out
    tickets           tickets and repairs that people wrote down
    node_fails        jobs that the node ended, its own ones and those of several nodes

excl_jobid_count, jobs that exclude a node, had no strong correlation with failures there and is not
counted. The paper prints no thresholds, it chose them by hand from the distribution. Here a signal
names a node if three times or more, which is again and again, and if a node that fails as often as
the others do would have so many once in twenty windows of the whole cluster (Poisson).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.slurm import outages
from roles.slurm_exporter.files.slurm_exporter.history import incidents
from roles.slurm_exporter.files.slurm_exporter.history.incidents import Entry, Known

DAY_S = 86400.0
WINDOW_S = 28 * DAY_S
RATE = 6.50 / 1000 / DAY_S  # failures for each second of a node: the others' at least
LEAST = 3
CHANCE = 0.05  # that any node of the cluster is named though none is worse
SIGNALS = ("out_count", "xid_cnt", "tickets", "node_fails")


@dataclass(frozen=True)
class NodeRecord:
    """Of one node in the window. signals: how often each was; lemon: those that name it."""

    node: str
    observed_s: float
    out_s: float
    interruptions: int
    signals: Mapping[str, int]
    lemon: tuple[str, ...] = ()

    @property
    def served_s(self) -> float:
        return max(0.0, self.observed_s - self.out_s)

    @property
    def between_s(self) -> float | None:
        """Time in service between interruptions; None where there was none."""
        return self.served_s / self.interruptions if self.interruptions else None


def records(
    known: Iterable[Known], entries: Sequence[Entry], now: float, window_s: float = WINDOW_S
) -> tuple[NodeRecord, ...]:
    """`entries` in the order of time, older ones too: an outage may have begun earlier."""
    of: dict[str, list[Entry]] = {}
    for entry in entries:
        of.setdefault(entry.node, []).append(entry)
    begin = now - window_s
    found = [_record(node, of.get(node.node, ()), begin, now) for node in known]
    return tuple(_judged(found))


def _record(node: Known, entries: Sequence[Entry], begin: float, now: float) -> NodeRecord:
    watched = max(begin, node.first_seen)
    out, began = 0.0, None
    for entry in entries:
        if entry.outage and began is None:
            began = entry.at
        elif entry.kind == incidents.RETURN and began is not None:
            out += max(0.0, entry.at - max(began, watched))
            began = None
    if began is not None and node.out:
        out += max(0.0, now - max(began, watched))
    recent = [entry for entry in entries if begin <= entry.at <= now]
    planned = (outages.PLANNED, outages.QUARANTINE)
    signals = {
        "out_count": sum(e.outage and e.kind not in planned for e in recent),
        "xid_cnt": sum(e.kind == outages.XID for e in recent),
        "tickets": sum(e.kind in (incidents.TICKET, incidents.REPAIR) for e in recent),
        "node_fails": sum(e.kind == incidents.JOB for e in recent),
    }
    interruptions = sum(e.interruption and e.at >= watched for e in recent)
    return NodeRecord(node.node, max(0.0, now - watched), out, interruptions, signals)


def _judged(found: Sequence[NodeRecord]) -> Iterable[NodeRecord]:
    sums = {name: sum(record.signals[name] for record in found) for name in SIGNALS}
    time_s = sum(record.observed_s for record in found)
    for record in found:
        others_s = time_s - record.observed_s
        lemon = []
        for name in SIGNALS:
            count = record.signals[name]
            others = (sums[name] - count) / others_s if others_s > 0 else 0.0
            # A node that is new here may have entries from before it was watched.
            expected = max(RATE, others) * max(record.observed_s, WINDOW_S)
            if count >= LEAST and tail(count, expected) * len(found) < CHANCE:
                lemon.append(name)
        yield NodeRecord(
            record.node,
            record.observed_s,
            record.out_s,
            record.interruptions,
            record.signals,
            tuple(lemon),
        )


def tail(count: int, expected: float) -> float:
    """That a Poisson variable is `count` or more.

    >>> round(tail(3, 0.182), 5)
    0.00088
    """
    term = total = math.exp(-expected)
    for number in range(1, count):
        term *= expected / number
        total += term
    return max(0.0, 1.0 - total)


def between_s(found: Iterable[NodeRecord]) -> float | None:
    """Mean time between interruptions of a node of this cluster: 1 / r_f."""
    each = tuple(found)
    count = sum(record.interruptions for record in each)
    return sum(record.served_s for record in each) / count if count else None
