"""XIDs and SXIDs of the kernel's log as a counter, each with what the validator makes of it.

DCGM counts XIDs of some minutes and forgets them; without DCGM nobody counts them at all. The log
is read by the one reader that the health checks use (cluster/readers/kernel_log.py), and judged
by the rules of the check `xid` (cluster/readers/xids.py): an alert, a drained node and a failed
validation agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from cluster.readers import kernel_log, xids
from cluster.readers.kernel_log import Event, KernelLog

NAME = "plumbline_kernel_xid_total"
HELP = "XIDs of GPUs and SXIDs of NVSwitches in the kernel's log since the boot."
LABELS = ("pci_bus_id", "kind", "xid", "verdict")

Series = Mapping[tuple[str, ...], float]


class Unreadable(Exception):
    """Why the kernel's log cannot be read."""


class Xids:
    """The counter. It never falls, also where the log forgets its first lines."""

    def __init__(self, read: Callable[[], KernelLog] = kernel_log.read) -> None:
        self._read = read
        self._source: str | None = None
        self._counts: Mapping[tuple[str, ...], int] = {}
        self._totals: Counter[tuple[str, ...]] = Counter()

    def collect(self) -> Series:
        """Values by those of LABELS. Raises Unreadable: a hidden log is no empty one."""
        log = self._read()
        if log.source is None:
            raise Unreadable(log.error or "no log shows a line of the kernel")
        seen = counted(log.events)
        for key, count in seen.items():
            if log.source == self._source:
                self._totals[key] += max(0, count - self._counts.get(key, 0))
            else:
                # Another log reaches back further or less far, and has mostly the same lines.
                self._totals[key] = max(self._totals[key], count)
        self._source, self._counts = log.source, seen
        return {key: float(count) for key, count in self._totals.items()}


def counted(events: Iterable[Event]) -> Mapping[tuple[str, ...], int]:
    known = xids.load()
    counts: Counter[tuple[str, ...]] = Counter()
    for event in events:
        worth, _ = xids.judge(event.kind, event.code, event.text, known)
        counts[bus_id(event.pci), event.kind, str(event.code), worth or "none"] += event.count
    return counts


def bus_id(pci: str) -> str:
    """As NVML and DCGM write it, so that series of one board meet.

    >>> bus_id("0000:1b:00")
    '00000000:1B:00.0'
    """
    domain, _, rest = pci.upper().partition(":")
    return f"{domain:0>8}:{rest}.0"
