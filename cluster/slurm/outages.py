"""Nodes out of service: why Slurm had them so, and what of it interrupted anybody.

An outage begins when a node that Slurm could use is drained or down, and ends when Slurm can use it
again. What is said of it in between belongs to the same outage: a node that does not answer, and is
drained by its health check afterwards, was interrupted once. What people drain and what is planned
interrupts nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from cluster.slurm.times import moment, parsed
from cluster.text import printable

XID, CHECK, VALIDATION, DOWN, DRAIN, PLANNED, QUARANTINE = (
    "xid", "check", "validation", "down", "drain", "planned", "quarantine",
)  # fmt: skip
# Out of service for a fault, that nobody chose.
FAULTS = (XID, CHECK, VALIDATION, DOWN)

OUT = frozenset({"drain", "drained", "draining", "down", "fail", "failing", "invalid_reg"})
_AWAY = frozenset({"powered_down", "powering_down", "powering_up", "power_down", "power_up"})
# Power saving and reboots that Slurm was asked for: the node is to be away.
_MEANT = _AWAY | {"maintenance", "maint", "reboot_issued", "reboot_requested"}
_BROKEN = frozenset({"down", "not_responding", "fail", "failing", "invalid_reg"})
_PLANNED = ("[plumbline:reboot]", "[plumbline:slurm]")
_OURS = re.compile(r"\[plumbline:([^\]]*)\] ?")
_XID = re.compile(r"\bS?XID:? \(?(\d+)", re.IGNORECASE)
_SLURM = ("slurm", "root", "")  # slurmctld's own account, and what runs as root on a node

# The reason last: an operator writes what he likes, the separator too.
COLUMNS = ("NodeName", "TimeStart", "TimeEnd", "State", "User", "Reason")


@dataclass(frozen=True)
class Event:
    """Of Slurm's accounting: a node out of service. Times in seconds since the epoch.

    end     None while it is
    states  small, such as "drain" and "not_responding"
    """

    node: str
    begin: float
    end: float | None
    states: frozenset[str]
    reason: str
    user: str

    @property
    def kind(self) -> str:
        return kind(self.reason, self.states, self.user)


def kind(reason: str, states: Iterable[str], user: str) -> str:
    """
    >>> kind("[plumbline:gpu_xid] GPU 3: XID 79", ["drain"], "root")
    'xid'
    >>> kind("new cable", ["drain"], "alice")
    'drain'
    """
    words = set(states)
    if reason.startswith(_PLANNED) or words & _MEANT:
        return PLANNED
    if ours := _OURS.match(reason):
        who = ours[1].partition("/")[0]
        fault = CHECK if xid(reason) is None else XID
        return {"validation": VALIDATION, "quarantine": QUARANTINE, "unfit": DRAIN}.get(who, fault)
    if user in _SLURM and words & _BROKEN:
        return DOWN
    # slurmctld's own words for a prolog, an epilog or a registration that failed.
    by_slurm = user in ("slurm", "") or re.match(r"(Prolog|Epilog) error", reason)
    return CHECK if by_slurm and user in _SLURM else DRAIN


def is_out(states: Set[str]) -> bool:
    """Whether a node in these states is of no use, and is not away on purpose."""
    return bool(states & OUT) and not states & _AWAY


def xid(text: str) -> int | None:
    """The number of the first XID or SXID that a text names.

    >>> xid("GPU 3: XID 79, fell off the bus")
    79
    """
    match = _XID.search(text)
    return int(match[1]) if match else None


def first_events(events: Iterable[Event]) -> Iterator[Event]:
    """Of one node, in the order of time: those with which an outage begins."""
    until = float("-inf")
    for event in events:
        if not is_out(event.states):
            continue
        # Another word begins an event where it ends the one before, in whole seconds.
        if event.begin > until + 1:
            yield event
        until = max(until, float("inf") if event.end is None else event.end)


# --- sacctmgr ------------------------------------------------------------------------------------


def question(begin: float, end: float | None = None) -> tuple[str, ...]:
    """What asks accounting for the events that were at any time between these two."""
    return (
        *("sacctmgr", "--noheader", "--parsable2", "show", "event", "event=node"),
        f"start={moment(begin)}",
        *(() if end is None else (f"end={moment(end)}",)),
        f"format={','.join(COLUMNS)}",
    )


def events(answer: str) -> Iterator[Event]:
    """Raises ValueError, with a sentence."""
    for line in answer.splitlines():
        cells = line.split("|", len(COLUMNS) - 1)
        if len(cells) != len(COLUMNS):
            continue  # the second line of a reason
        node, begin, end, state, user, reason = cells
        began = parsed(begin)
        if began is None:
            raise ValueError(f"an event of {printable(node, 40)!r} began {printable(begin, 40)!r}")
        states = frozenset(re.findall(r"[a-z_]+", state.lower()))
        by = user.partition("(")[0]
        yield Event(node, began, parsed(end), states, printable(reason), by)
