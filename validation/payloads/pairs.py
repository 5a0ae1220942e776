"""all_reduce of two nodes, and how much of what each sent over TCP was lost on its way.

A link that loses a packet now and then is as fast as others in the median: TCP sends again what was
lost, mostly within the time of a call. It also sends again what was only late, as on busy nodes;
the receiver tells of that (DSACK, RFC 2883), and it counts as needless.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from validation.payloads import all_reduce

if TYPE_CHECKING:
    from validation.payloads.group import Group

PROC_NET = Path("/proc/net")


@dataclass(frozen=True)
class Segments:
    """TCP segments that a node sent to anybody, those of them that it sent again, and those of
    these that had arrived before.
    """

    sent: int
    again: int
    needless: int

    def since(self, before: Segments) -> Segments:
        return Segments(
            self.sent - before.sent, self.again - before.again, self.needless - before.needless
        )


def segments(proc: Path = PROC_NET) -> Segments:
    """Since the node started: OutSegs, which has those sent again on Linux, and RetransSegs of RFC
    1213, and TCPDSACKRecvSegs of Linux 5.10, before which only the messages were counted.

    Raises OSError, KeyError and ValueError where the kernel does not tell.
    """
    tcp = _counters(proc / "snmp", "Tcp:")
    extended = _counters(proc / "netstat", "TcpExt:")
    needless = extended.get("TCPDSACKRecvSegs", extended["TCPDSACKRecv"])
    return Segments(tcp["OutSegs"], tcp["RetransSegs"], needless)


def _counters(path: Path, kind: str) -> dict[str, int]:
    lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    names, values = (line[1:] for line in lines if line and line[0] == kind)
    return dict(zip(names, map(int, values), strict=True))


def measure(config: all_reduce.Config, group: Group) -> dict[str, Any]:
    """See all_reduce.measure; and each rank's Segments meanwhile. Collective."""
    before = segments()
    measured = all_reduce.measure(config, group)
    return {**measured, "tcp": group.gather(asdict(segments().since(before)))}
