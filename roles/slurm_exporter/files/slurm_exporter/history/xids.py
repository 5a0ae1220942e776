"""XIDs that drain nobody, from Prometheus into the ledger.

A health check drains a node for some XIDs, and Slurm tells of those. The others, such as an error
of memory that was contained, are in the kernel's log of the node until its next boot, and in
Prometheus, which counts them by node and board.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cluster import prometheus
from cluster.exporter import Failed, Family
from cluster.prometheus import NoAnswer, Server
from roles.slurm_exporter.files.slurm_exporter.history import incidents, ledger
from roles.slurm_exporter.files.slurm_exporter.history.collect import AGAIN_S, BACK_S
from roles.slurm_exporter.files.slurm_exporter.history.incidents import LoggedXid

STEP_S = 300.0
# By then a health check, which looks once a minute unless a site says otherwise, has drained the
# node, and its word has more in it than the count.
SETTLED_S = incidents.ABOUT_S

# The verdict `none` is of what programs do to themselves, and of what says nothing of a board.
_OF_NODES = 'plumbline_kernel_xid_total{kind=~"xid|sxid",verdict=~"fail|warn"}'
_COUNT = f"max by (node, pci_bus_id, kind, xid) ({_OF_NODES})"
_BEFORE = f"max by (node, pci_bus_id, kind, xid) ({_OF_NODES} offset 5m)"
# A count that was not there is new where somebody counted, or where the node booted since. Else it
# is one that nobody could ask for.
_COUNTED = 'max by (node) (plumbline_exporter_collector_success{collector="xid"} offset 5m) == 1'
_BOOTED = "time() - max by (node) (node_boot_time_seconds) < 900"
ROSE = (
    f"{_COUNT} - {_BEFORE} > 0"
    f" or ({_COUNT} unless {_BEFORE}) and on (node) ({_COUNTED} or {_BOOTED})"
)
WORDS = {"xid": "XID {} of the GPU {}", "sxid": "SXID {} of the NVSwitch {}"}


@dataclass
class Xids:
    """Asked once in ten minutes, and again in the next round where there was no answer."""

    path: Path
    server: Server | None
    _until: float = float("-inf")

    def collect(self, now: float | None = None) -> tuple[Family, ...]:
        """Nothing but entries of the ledger, whose numbers `history` tells. Raises Failed."""
        until = ((time.time() if now is None else now) - SETTLED_S) // STEP_S * STEP_S
        if 0 <= until - self._until < AGAIN_S:
            return ()
        # Also where the clock went back.
        since = self._until if until - BACK_S < self._until < until else until - BACK_S
        try:
            assert self.server is not None
            logged = list(rises(self.server, since + STEP_S, until))
        except NoAnswer as error:
            raise Failed(str(error)) from None
        with ledger.opened(self.path, write=True) as book:
            first_seen = {name: known.first_seen for name, known in book.known().items()}
            before = list(book.entries(since=since - incidents.SAME_XID_S))
            book.write(incidents.xids(logged, before, first_seen))
        self._until = until
        return ()


def rises(server: Server, begin: float, end: float) -> Iterator[LoggedXid]:
    """Raises NoAnswer."""
    by_bus: list[tuple[str, LoggedXid]] = []
    for series in prometheus.over(server, ROSE, begin, end, STEP_S):
        labels = {name: series.labels.get(name, "") for name in ("node", "pci_bus_id", "xid")}
        text = WORDS[series.labels["kind"]].format(labels["xid"], labels["pci_bus_id"])
        for at, _ in series.points:
            by_bus.append((labels["pci_bus_id"], LoggedXid(labels["node"], at, text)))
    boards = _boards(server, [xid.node for _, xid in by_bus], end) if by_bus else {}
    for bus, xid in by_bus:
        yield replace(xid, gpu=boards.get((xid.node, bus), ""))


def _boards(server: Server, nodes: Sequence[str], at: float) -> dict[tuple[str, str], str]:
    """UUIDs by node and bus: where a board was at the end."""
    names = "|".join(sorted(set(nodes)))
    query = f'group by (node, pci_bus_id, UUID) (DCGM_FI_DEV_GPU_TEMP{{node=~"{names}"}})'
    return {
        (board.labels.get("node", ""), board.labels.get("pci_bus_id", "")): board.labels["UUID"]
        for board in prometheus.now(server, query, at)
        if "UUID" in board.labels
    }
