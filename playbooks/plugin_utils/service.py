"""Nodes on their way out of Slurm's service and back: pure functions from what Slurm says.

Whose a drained node is, its reason says: what begins with MARK was taken out by this role, and goes
back by it, also when another run finds it so. Whatever else drained a node stays as it is.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cluster.hostlist import expand
from cluster.slurm.node_states import NOWHERE, SIGNED, UNSETTLED, NodeStatus, slurm_nodes

MARK = "[plumbline:reboot]"
# The same, and Slurm first has to be told what the node is now: its slurmd cannot start before.
WAITS = "[plumbline:slurm]"
# Dropped out of a run. It may have jobs, and is in nobody's way: the next complete run resumes it.
UNFIT = "[plumbline:unfit]"
# Between the parts of one answer; the first line says whether there is a Slurm.
STARTS, JOBS = "-- slurmd --", "-- jobs --"
# What slurmd notes as its start and what it registers with may be a second apart.
START_SECONDS = 5
ANSWERS, SILENT, ABSENT = "answers", "silent", "absent"
# Pending jobs run nowhere; every other state holds its nodes, a suspended one too.
NOWHERE_YET = {"PD"}
BROKEN = {"DOWN", "FAIL", "FAILING"}
REASON_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Job:
    """A job that holds a node; `until` is when its time limit ends it, in UTC."""

    number: str
    user: str
    until: datetime | None = None

    def __str__(self) -> str:
        return f"{self.number} ({self.user})"


@dataclass(frozen=True, slots=True)
class Answer:
    """What Slurm said of nodes, and of the jobs on them."""

    slurm: str
    nodes: Mapping[str, NodeStatus]
    starts: Mapping[str, str]  # node -> when its slurmd started, as slurmctld was told
    jobs: Mapping[str, Sequence[Job]]  # node -> each job that holds it

    def state_of(self, node: str) -> NodeStatus:
        return self.nodes.get(node, NOWHERE)


def read(output: str) -> Answer:
    """Raises ValueError when the text is not an answer: nothing said is not `no jobs`."""
    first, _, rest = output.strip().partition("\n")
    if first not in (ANSWERS, SILENT, ABSENT):
        raise ValueError(f"Slurm was asked for its nodes, and the answer began with {first!r}")
    if first != ANSWERS:
        return Answer(first, {}, {}, {})
    nodes, _, rest = rest.partition(STARTS)
    starts, separator, jobs = rest.partition(JOBS)
    if not separator:
        raise ValueError("Slurm was asked for its nodes, and the answer is cut off")
    held: dict[str, list[Job]] = {}
    for line in jobs.strip().splitlines():
        number, state, user, end, where = line.split(None, 4)
        if state not in NOWHERE_YET:
            job = Job(number, user, _time(end))
            for node in expand(where):
                held.setdefault(node, []).append(job)
    started = dict(line.split() for line in starts.strip().splitlines())
    return Answer(ANSWERS, slurm_nodes(nodes), started, held)


def _time(text: str) -> datetime | None:
    """A time as Slurm writes it, which was asked in UTC; None for N/A, Unknown and the like."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


# --- whose a node is -----------------------------------------------------------------------------


def is_ours(node: NodeStatus) -> bool:
    return node.drained and node.reason.startswith((MARK, WAITS, UNFIT))


def waits(output: str, node: str) -> bool:
    """Whether the node was taken out of service until the end of a run that does all of it."""
    return _waits(read(output).state_of(node))


def _waits(node: NodeStatus) -> bool:
    return is_ours(node) and node.reason.startswith((WAITS, UNFIT))


def _dropped_out(node: NodeStatus) -> bool:
    return is_ours(node) and node.reason.startswith(UNFIT)


def keeper(node: NodeStatus) -> str:
    """The reason for which somebody else keeps a node out of service; "" when nobody does."""
    if is_ours(node):
        return ""
    if node.drained:
        return node.reason or "no reason given"
    signed = SIGNED.match(node.reason[node.reason.rfind(" [") :]) if node.reason else None
    by_person = signed is not None and signed["who"] != "slurm"
    return node.reason if node.flags & BROKEN and by_person else ""


def place(output: str, node: str, slurmd: bool, due: bool) -> str:
    """When a node has its turn.

    now   Slurm gives it no jobs, or there is nothing to do that its jobs would notice
    left  an earlier run took it out of service and did not bring it back
    turn  it has to be taken out of service first, and not too many at once
    """
    answer = read(output)
    if answer.slurm == ABSENT or not slurmd:
        return "now"
    if answer.slurm == SILENT:
        return "turn" if due else "now"
    if node not in answer.nodes:
        return "now"
    if is_ours(answer.nodes[node]) and not _dropped_out(answer.nodes[node]):
        return "left"
    return "turn" if due else "now"


# --- out -----------------------------------------------------------------------------------------


def reason(words: str, waits: bool = False, unfit: bool = False) -> str:
    """A reason for Slurm: what for, in one line that its tables can show."""
    mark = UNFIT if unfit else WAITS if waits else MARK
    line = re.sub(r"\s+", " ", words).replace('"', "'").strip()
    return f"{mark} {line[:REASON_CHARACTERS].rstrip()}"


def operator() -> str:
    """Who runs this, and where."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"user {os.getuid()}"
    return f"{name} on {socket.gethostname()}"


def to_drain(output: str, nodes: Collection[str]) -> list[str]:
    """Of these nodes, those that nobody took out of service; one that is down is among them."""
    answer = read(output)
    seen = ((name, answer.state_of(name)) for name in nodes)
    return [name for name, node in seen if not is_ours(node) and not keeper(node)]


def in_service(output: str, nodes: Collection[str]) -> list[str]:
    """Of these nodes, those that Slurm gives jobs to."""
    states = read(output).nodes
    return [
        name
        for name in nodes
        if name in states and not (states[name].drained or states[name].unsettled)
    ]


def out_already(output: str, nodes: Collection[str], begun: Collection[str] = ()) -> list[str]:
    """`NAME (reason)` of other nodes for which no further one may go out of service.

    Those that only wait for Slurm to be told of them are well.

    nodes  those that have their turn
    begun  those of this run that had it and are not well
    """
    answer = read(output)
    here = set(nodes)
    reasons = {
        name: node.reason
        for name, node in answer.nodes.items()
        if is_ours(node) and not _waits(node)
    }
    reasons = {name: answer.state_of(name).reason for name in begun} | reasons
    return [f"{name} ({why})" if why else name for name, why in reasons.items() if name not in here]


def busy(output: str, nodes: Collection[str]) -> dict[str, str]:
    """Node -> what runs there, or why nobody knows; a node that is missing here is empty."""
    answer = read(output)
    if answer.slurm != ANSWERS:
        return dict.fromkeys(nodes, "slurmctld does not answer")
    reasons = {}
    for name in nodes:
        jobs, node = answer.jobs.get(name, ()), answer.state_of(name)
        if jobs:
            reasons[name] = f"job{'s' if len(jobs) > 1 else ''} {', '.join(map(str, jobs))}"
        elif name not in answer.nodes:
            reasons[name] = "slurmctld does not know the node any more"
        elif node.busy:
            reasons[name] = "a job that is just ending"
        elif not node.drained and not keeper(node):
            reasons[name] = "it is not drained any more"
    return reasons


# --- back ----------------------------------------------------------------------------------------


def slurmd_start(output: str) -> str:
    """When the slurmd that runs now was started, from `scontrol show slurmd`; "" when none does."""
    match = re.search(r"^Boot time\s*=\s*(\S+)$", output, re.MULTILINE)
    return match[1] if match else ""


def silent(output: str, starts: Mapping[str, str]) -> list[str]:
    """Of these nodes, those whose slurmd, as it runs now, has not registered with slurmctld.

    starts  node -> when its slurmd started, of which slurmctld may only know an earlier one
    """
    answer = read(output)
    return [
        name
        for name, start in starts.items()
        if answer.state_of(name).flags & (UNSETTLED - BROKEN)
        or not _registered(start, answer.starts.get(name, ""))
    ]


def _registered(start: str, registered: str) -> bool:
    """Both in UTC and as Slurm writes times. What is no time is no registration."""
    try:
        late = datetime.fromisoformat(start) - datetime.fromisoformat(registered)
    except ValueError:
        return False
    return late.total_seconds() <= START_SECONDS


def to_return(output: str, nodes: Collection[str]) -> list[str]:
    """Of these nodes, those that this role took out and that nobody claimed since."""
    answer = read(output)
    return [name for name in nodes if is_ours(answer.state_of(name))]


def kept_out(output: str, nodes: Collection[str]) -> dict[str, str]:
    """Node -> the reason for which somebody else keeps it out of service."""
    answer = read(output)
    return {name: why for name in nodes if (why := keeper(answer.state_of(name)))}


def not_back(output: str, nodes: Collection[str]) -> dict[str, str]:
    """Node -> why Slurm gives it no jobs although nobody keeps it."""
    answer = read(output)
    reasons = {}
    for name in nodes:
        node = answer.state_of(name)
        if not keeper(node) and (node.unsettled or node.drained):
            reasons[name] = str(node)
    return reasons
