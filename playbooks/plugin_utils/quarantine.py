"""Suspects in a reservation of their own: pure functions from what Slurm says.

A suspect stays in service for the jobs that it has, and nobody but the validation gets a new one
there. What the validation proves goes back; what it does not is drained. Where each node is, Slurm
itself remembers: in the reservation, or drained with a reason of ours. So a run that is killed
anywhere goes on where it was.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cluster.hostlist import HostlistError, expand
from cluster.text import printable
from playbooks.plugin_utils import service

RESERVATION = "plumbline-quarantine"
MARK = "[plumbline:quarantine]"
_UNREADY = {"NOT_RESPONDING", "DOWN", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}


@dataclass(frozen=True, slots=True)
class Quarantine:
    """What a run does with the nodes that it was asked for.

    reserved  all nodes of the reservation afterwards; new: those that are not in it yet
    resume    drained by an earlier run of this: once they are reserved they may be proven anew
    ready     may be proven now: nobody's job runs there
    waits     node -> the jobs that it is waiting for
    refused   node -> why it is left alone, and what to do
    """

    reserved: tuple[str, ...]
    new: tuple[str, ...]
    resume: tuple[str, ...]
    ready: tuple[str, ...]
    waits: Mapping[str, str]
    refused: Mapping[str, str]


def kept(said: str) -> list[str]:
    """The nodes of the reservation, from `scontrol -o show reservation`; [] without one."""
    match = re.search(rf"^ReservationName={RESERVATION} .*?\bNodes=(\S+)", said, re.MULTILINE)
    if match is None:
        return []
    try:
        return list(expand(match[1]))
    except HostlistError:  # (null)
        return []


def plan(asked: Sequence[str], slurm: str, said: str) -> Quarantine:
    """Raises ValueError, in one sentence without its end, where Slurm does not answer."""
    answer = service.read(slurm)
    if answer.slurm != service.ANSWERS:
        raise ValueError("slurmctld does not answer, so nothing was changed")
    before = kept(said)
    refused: dict[str, str] = {}
    taken: list[str] = []
    resume: list[str] = []
    for name in asked:
        node = answer.state_of(name)
        if name not in answer.nodes:
            refused[name] = "Slurm does not know it"
        elif node.drained and not node.reason.startswith(MARK):
            reason = node.reason or "no reason given"
            refused[name] = f"it is drained ({reason}); resume it first, or leave it to who did"
        elif node.flags & _UNREADY:
            refused[name] = str(node)
        else:
            taken.append(name)
            resume += [name] if node.drained else []
    waits = {
        name: f"job{'s' if len(jobs) > 1 else ''} {', '.join(map(str, jobs))}"
        for name in taken
        if (jobs := answer.jobs.get(name))
    }
    return Quarantine(
        reserved=tuple(dict.fromkeys([*before, *taken])),
        new=tuple(name for name in taken if name not in before),
        resume=tuple(resume),
        ready=tuple(name for name in taken if name not in waits),
        waits=waits,
        refused=refused,
    )


def reserve(planned: Quarantine, before: Collection[str], user: str) -> list[str]:
    """The command that makes the reservation or adds to it; [] where nothing is to be done."""
    if not planned.new:
        return []
    nodes = f"nodes={','.join(planned.reserved)}"
    if before:
        return ["scontrol", "update", f"reservationname={RESERVATION}", nodes]
    return [
        *("scontrol", "create", "reservation", f"reservationname={RESERVATION}"),
        *("starttime=now", "duration=infinite", "flags=maint,ignore_jobs", nodes),
        f"users={user}",
    ]


def release(before: Sequence[str], done: Collection[str]) -> list[str]:
    """The command that lets others in again on these nodes; [] where none of them is reserved."""
    left = [name for name in before if name not in done]
    if len(left) == len(before):
        return []
    if not left:
        return ["scontrol", "delete", f"reservationname={RESERVATION}"]
    return ["scontrol", "update", f"reservationname={RESERVATION}", f"nodes={','.join(left)}"]


def reason(words: str) -> str:
    """For Slurm, which ends a reason at a quote."""
    line = printable(words.replace('"', "'"))
    return printable(f"{MARK} {line}", service.REASON_CHARACTERS)


def told(planned: Quarantine, verdicts: Mapping[str, str]) -> list[str]:
    """A sentence for each node that is not back, without its end."""
    return [
        *(f"{name} is left alone: {why}" for name, why in planned.refused.items()),
        *(f"{name} is kept, and waits for {why}" for name, why in planned.waits.items()),
        *(f"{name} is drained: {why}" for name, why in verdicts.items() if why),
    ]
