"""What a rank can say of a failure of NCCL, as lines that the login node gathers.

    plumbline: nccl rank 3 on gpu2 warned: socketStartConnect: Connect to 192.0.2.7 failed

The words before the colon are of KINDS. What all ranks say alike is folded there into one sentence
(validation/checks/nccl_notes.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.readers import nccl_ras
from validation.payloads import flight_recorder, nccl_debug, nccl_log

Fact = tuple[str, str]  # a kind, and what is said

KINDS = (
    "warned",  # NCCL's last warning, with its hints
    "network",  # what goes between nodes: "IB mlx5_0:1, mlx5_1:1"
    "bootstrap",  # the interface over which the ranks met
    "waits",  # what torch's flight recorder has of the last collectives
    "ras",  # what NCCL's RAS knows of all ranks
    "no-ras",  # why it told nothing
)
LONGEST = 400
PORTS = 4


@dataclass(frozen=True)
class Witness:
    """One rank's. log is that of its NCCL, None without; first says whether it is its node's first
    rank, which asks RAS for all.
    """

    log: Path | None
    first: bool

    def said(self) -> str | None:
        """What NCCL itself last warned of."""
        return nccl_debug.complaint(self.log)

    def seen(self) -> Sequence[Fact]:
        """What its log shows. Takes no time."""
        return () if self.log is None else tuple(_seen(nccl_debug.read(self.log)))

    def asked(self) -> Sequence[Fact]:
        """What others know of a hang. Takes seconds, and torch may not come back from a lost GPU:
        for after the complaint is out.
        """
        return () if self.log is None else tuple(self._asked())

    def _asked(self) -> Iterator[Fact]:
        if self.first:
            address = os.environ.get("NCCL_RAS_ADDR") or nccl_ras.ADDRESS
            answer = nccl_ras.ask(address)
            if answer is None:
                yield "no-ras", nccl_ras.SILENT.format(address)
            else:
                yield "ras", nccl_ras.shortened(answer)
        if (recorded := flight_recorder.dump()) is not None and (
            waits := flight_recorder.shortened(recorded)
        ):
            yield "waits", waits


def line(rank: int, host: str, fact: Fact) -> str:
    kind, text = fact
    return f"plumbline: nccl rank {rank} on {host} {kind}: {' '.join(text.split())[:LONGEST]}"


def _seen(summary: nccl_log.Summary) -> Iterator[Fact]:
    if network := network_of(summary):
        yield "network", network
    if summary.bootstrap:
        yield "bootstrap", ", ".join(summary.bootstrap)


def network_of(summary: nccl_log.Summary) -> str:
    """The network that NCCL took, and over which of its devices or interfaces it can go."""
    names = [device.name for device in summary.devices] or list(summary.interfaces)
    shown = ", ".join(names[:PORTS]) + (f" and {len(names) - PORTS} more" if names[PORTS:] else "")
    return " ".join(filter(None, (", ".join(summary.networks), shown)))
