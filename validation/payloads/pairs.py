"""all_reduce of two nodes, and how much of what each sent over TCP it had to send again.

A link that loses a packet now and then is as fast as others in the median: TCP sends again what was
lost, mostly within the time of a call.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from validation.payloads import all_reduce

if TYPE_CHECKING:
    from validation.payloads.group import Group

SNMP = Path("/proc/net/snmp")


@dataclass(frozen=True)
class Segments:
    """TCP segments that a node sent to anybody, and those of them that it sent again."""

    sent: int
    again: int


def segments(snmp: Path = SNMP) -> Segments:
    """Since the node started (RFC 1213: tcpOutSegs, tcpRetransSegs; Linux counts the latter in the
    former, too). Raises OSError and ValueError where the kernel does not tell.
    """
    lines = [line.split() for line in snmp.read_text(encoding="ascii").splitlines()]
    names, values = (line for line in lines if line[0] == "Tcp:")
    counters = dict(zip(names[1:], map(int, values[1:]), strict=True))
    return Segments(counters["OutSegs"], counters["RetransSegs"])


def measure(config: all_reduce.Config, group: Group) -> dict[str, Any]:
    """See all_reduce.measure; and each rank's Segments meanwhile. Collective."""
    before = segments()
    measured = all_reduce.measure(config, group)
    after = segments()
    mine = Segments(after.sent - before.sent, after.again - before.again)
    return {**measured, "tcp": group.gather(asdict(mine))}
