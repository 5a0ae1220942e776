"""A round of the exporter: look at the nodes, write down what befell them, and tell it in numbers.

Nodes are those of the round, which asks for them anyway. Accounting is asked once in ten minutes:
for outages that nobody saw, and for jobs that a node ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster import hostlist
from cluster.exporter import Family, Labels, gauge
from cluster.slurm import outages
from cluster.slurm.outages import Event
from cluster.slurm.times import moment, parsed
from roles.slurm_exporter.files.slurm_exporter.history import incidents, ledger, lemons
from roles.slurm_exporter.files.slurm_exporter.history.incidents import LostJob, Seen
from roles.slurm_exporter.files.slurm_exporter.history.lemons import NodeRecord
from roles.slurm_exporter.files.slurm_exporter.nodes import SlurmNode
from roles.slurm_exporter.files.slurm_exporter.words import Nonsense

AGAIN_S = 600.0
BACK_S = 2 * lemons.DAY_S  # accounting records late, and the exporter may have been away
JOBS = ("JobIDRaw", "End", "NodeList")

Run = Callable[[Sequence[str]], str]


@dataclass
class History:
    """accounting: whether Slurm has an accounting database."""

    path: Path
    accounting: bool
    run: Run
    _asked: float = float("-inf")
    _told: tuple[Family, ...] = field(default_factory=tuple)

    def round(self, nodes: Sequence[SlurmNode], now: float | None = None) -> tuple[Family, ...]:
        """Raises Failed; what could be written down then is."""
        now = time.time() if now is None else now
        with ledger.opened(self.path, write=True) as book:
            entries, changed = incidents.look(book.known(), list(map(seen, nodes)), now)
            new = book.write(entries, changed)
            due = not 0 <= now - self._asked < AGAIN_S
            if due and self.accounting:
                new += self._ask(book, now)
            if due or new:
                there = {node.name for node in nodes}
                known = [node for node in book.known().values() if node.node in there]
                found = lemons.records(known, list(book.entries()), now)
                self._told = tuple(families(book.counts(), found))
        if due:
            self._asked = now
        return self._told

    def _ask(self, book: ledger.Ledger, now: float) -> int:
        before = list(book.entries(since=now - 2 * BACK_S))
        first_seen = {name: known.first_seen for name, known in book.known().items()}
        found = list(incidents.missed(events(self.run, now - BACK_S), before, first_seen))
        both = sorted([*before, *found], key=lambda entry: entry.at)
        found += incidents.jobs(lost_jobs(self.run, now - BACK_S), both)
        return book.write(entry for entry in found if entry.node in first_seen)


def seen(node: SlurmNode) -> Seen:
    return Seen(node.name, node.states, node.reason, node.user, node.reason_at, node.boot_at)


def families(
    counts: Mapping[tuple[str, str], int], found: Sequence[NodeRecord]
) -> Iterator[Family]:
    """Of nodes that Slurm has: the ledger remembers others as well."""
    there = {record.node for record in found}
    kept: dict[Labels, float] = {key: float(n) for key, n in counts.items() if key[0] in there}
    yield Family(
        "plumbline_node_incidents_total",
        "What befell the node since it was first seen, by kind",
        ("node", "kind"),
        kept,
        "counter",
    )
    each = (
        ("interruptions", "Interruptions in 28 days", lambda r: float(r.interruptions)),
        ("observed_seconds", "How much of 28 days the node was watched", lambda r: r.observed_s),
        ("out_seconds", "How long in 28 days the node was out of service", lambda r: r.out_s),
        (
            "lemon",
            "1 where the node fails more often than chance lets it",
            lambda r: float(bool(r.lemon)),
        ),
    )
    for name, text, value in each:
        yield Family(
            f"plumbline_node_{name}", text, ("node",), {(r.node,): value(r) for r in found}
        )
    yield Family(
        "plumbline_node_lemon_signal",
        "How often in 28 days, of the signals that name a lemon",
        ("node", "signal"),
        {(r.node, name): float(r.signals[name]) for r in found for name in r.lemon},
    )
    between = lemons.between_s(found)
    if between is not None:
        yield gauge(
            "plumbline_nodes_between_interruptions_seconds",
            "Mean time of a node between interruptions, over 28 days",
            between,
        )


# --- accounting ----------------------------------------------------------------------------------


def events(run: Run, since: float) -> list[Event]:
    """Raises Nonsense."""
    try:
        return list(outages.events(run(outages.question(since))))
    except ValueError as error:
        raise Nonsense(str(error)) from None


def lost_jobs(run: Run, since: float) -> Iterator[LostJob]:
    text = run(
        (
            *("sacct", "--allusers", "--duplicates", "--allocations", "--noheader", "--parsable2"),
            *("--state=NODE_FAIL", f"--starttime={moment(since)}", "--endtime=now"),
            f"--format={','.join(JOBS)}",
        )
    )
    for line in text.splitlines():
        job, _, rest = line.partition("|")
        end, _, names = rest.partition("|")
        ended = parsed(end)
        if ended is None:
            continue
        try:
            yield LostJob(job, ended, tuple(hostlist.expand(names)))
        except hostlist.HostlistError:  # "None assigned"
            continue
