"""Nodes that Slurm has and the inventory has not any more: what would be lost with them.

A slurmctld that finds a node gone ends the jobs on it and the pending ones that ask for it by
name, and deletes the reservations that have it. So a node leaves only when it is out of service and
nothing is bound to it. Pure functions from what Slurm says (`__slurm_read_leaving`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cluster.hostlist import compress, expand
from cluster.slurm.node_states import NodeStatus, slurm_nodes

ANSWERS, SILENT, ABSENT = "answers", "silent", "absent"
JOBS, RESERVATIONS = "-- jobs --", "-- reservations --"
AWAY = {"DOWN", "NOT_RESPONDING"}
PENDING = "PD"
NAMED = 5  # jobs of a node that are told


@dataclass(frozen=True, slots=True)
class Leaving:
    """Nodes that leave, and what is still bound to them."""

    slurm: str
    nodes: Mapping[str, NodeStatus]
    running: Mapping[str, Sequence[str]]  # node -> `7 (ops)` of each job that holds it
    pending: Mapping[str, Sequence[str]]  # node -> the same, of those that ask for it by name
    reserved: Mapping[str, Sequence[str]]  # node -> reservations that have it


def read(output: str, declared: Collection[str]) -> Leaving:
    """Raises ValueError when the text is not an answer: nothing said is not `no jobs`."""
    first, _, rest = output.strip().partition("\n")
    if first not in (ANSWERS, SILENT, ABSENT):
        raise ValueError(f"Slurm was asked what leaves, and the answer began with {first!r}")
    staying = set(declared)
    if first != ANSWERS:  # what slurm.conf has, as NodeName= has it
        names = [name for word in rest.split() for name in expand(word)]
        unknown = NodeStatus(frozenset({"UNKNOWN"}), "")
        return Leaving(first, {n: unknown for n in names if n not in staying}, {}, {}, {})
    nodes, jobs_follow, rest = rest.partition(JOBS)
    jobs, reservations_follow, reservations = rest.partition(RESERVATIONS)
    if not jobs_follow or not reservations_follow:
        raise ValueError("Slurm was asked what leaves, and the answer is cut off")
    leaving = {
        name: node
        for name, node in slurm_nodes(nodes).items()
        # A node that joined by itself (slurmd -Z) is in no file of ours and stays.
        if name not in staying and not any(flag.startswith("DYNAMIC") for flag in node.flags)
    }
    running: dict[str, list[str]] = {}
    pending: dict[str, list[str]] = {}
    for line in jobs.strip().splitlines():
        number, state, user, holds, asks = line.split("|")
        bound, where = (pending, asks) if state == PENDING else (running, holds)
        for name in _names(where):
            if name in leaving:
                bound.setdefault(name, []).append(f"{number} ({user})")
    reserved: dict[str, list[str]] = {}
    for line in reservations.strip().splitlines():
        reservation, where = line.split(None, 1)
        for name in _names(where):
            if name in leaving:
                reserved.setdefault(name, []).append(reservation)
    return Leaving(ANSWERS, leaving, running, pending, reserved)


def _names(where: str) -> list[str]:
    return [] if where.strip() in ("", "(null)") else expand(where)


# --- the gate: what no run does ------------------------------------------------------------------


def leaving_refusals(output: str, declared: Collection[str], controller: str) -> list[str]:
    """Why Slurm's files must not be written without the nodes that are in them now."""
    leaving = read(output, declared)
    if leaving.slurm == SILENT and leaving.nodes:
        return [_silent(leaving, controller)]
    alike: dict[str, list[str]] = {}
    for name, node in leaving.nodes.items():
        if why := _bound(leaving, name) or _in_service(node):
            alike.setdefault(why, []).append(name)
    return [
        f"{compress(nodes)}: in Slurm, not in slurm_compute any more, and {why}; take "
        "it out of service with playbooks/remove-nodes.yml, or put it back into the inventory."
        for why, nodes in alike.items()
    ]


def _silent(leaving: Leaving, controller: str) -> str:
    return (
        f"{compress(leaving.nodes)}: in Slurm, not in slurm_compute any more, and "
        f"slurmctld on {controller} does not answer, so nobody knows what runs there; start "
        "slurmctld, or put it back into the inventory."
    )


def _in_service(node: NodeStatus) -> str:
    """A node that is down or does not answer gets no jobs either."""
    return "" if node.drained or node.unsettled else "in service"


def _bound(leaving: Leaving, name: str) -> str:
    """What would be lost with a node, for a sentence; "" when nothing would."""
    running = leaving.running.get(name, ())
    pending = leaving.pending.get(name, ())
    losses = [
        f"{_jobs(running)} there" if running else "",
        f"{_jobs(pending, 'waits', 'wait')} for it by name" if pending else "",
        f"reserved ({', '.join(leaving.reserved[name])})" if name in leaving.reserved else "",
    ]
    ending = not running and leaving.nodes[name].busy
    return ", ".join(filter(None, [*losses, "a job is just ending there" if ending else ""]))


def _jobs(jobs: Sequence[str], singular: str = "runs", many: str = "run") -> str:
    """`job 7 (ops) runs`, `jobs 7 (ops), 8 (eve) and 9 more run`."""
    shown = ", ".join(jobs[:NAMED])
    if len(jobs) > NAMED:
        shown = f"{shown} and {len(jobs) - NAMED} more"
    return f"job {shown} {singular}" if len(jobs) == 1 else f"jobs {shown} {many}"


# --- the removal ---------------------------------------------------------------------------------


def leaving_nodes(output: str, declared: Collection[str]) -> list[str]:
    return list(read(output, declared).nodes)


def removal_refusals(
    output: str, declared: Collection[str], controller: str, wait: int, cancel: bool
) -> list[str]:
    """Why nodes are not even taken out of service, one sentence for each thing to decide.

    wait    seconds that running jobs may take to end
    cancel  whether jobs are ended
    """
    return list(_removal_refusals(read(output, declared), controller, wait, cancel))


def _removal_refusals(leaving: Leaving, controller: str, wait: int, cancel: bool) -> Iterator[str]:
    if leaving.slurm == SILENT and leaving.nodes:
        yield _silent(leaving, controller)
    for name, reservations in leaving.reserved.items():
        for reservation in reservations:
            yield (
                f"{name} stays, for Slurm deletes the reservation {reservation} when one of its "
                f"nodes goes; take it out first: scontrol update reservationname={reservation} "
                f"nodes-={name}"
            )
    if cancel:
        return
    for name, jobs in leaving.pending.items():
        yield (
            f"{name} stays, for {_jobs(jobs, 'waits', 'wait')} for it by name and would fail; let "
            "the owner ask for another node, or end what waits with "
            "-e slurm_removal_cancel_jobs=true."
        )
    if wait:
        return
    for name, jobs in leaving.running.items():
        yield (
            f"{name} stays, for {_jobs(jobs)} there; wait for the end with "
            "-e slurm_removal_wait=SECONDS, or end what runs with "
            "-e slurm_removal_cancel_jobs=true."
        )


def to_drain(output: str, declared: Collection[str]) -> list[str]:
    """Those that may get a job; a reason that somebody gave before stays."""
    return [name for name, node in read(output, declared).nodes.items() if not node.drained]


def to_cancel(output: str, declared: Collection[str], pending: bool) -> list[str]:
    """Numbers of the jobs that hold the nodes, or of the pending ones that ask for them."""
    leaving = read(output, declared)
    bound = leaving.pending if pending else leaving.running
    numbers = (job.partition(" ")[0] for jobs in bound.values() for job in jobs)
    # A pending array is 7_[3-9%2] in one line; scancel --state=PENDING 7 is all of it.
    return list(dict.fromkeys(n.partition("_[")[0] if pending else n for n in numbers))


def to_set_down(output: str, declared: Collection[str]) -> list[str]:
    """Those that hold jobs and do not answer: slurmctld would wait for them to say it ended."""
    leaving = read(output, declared)
    return [n for n, node in leaving.nodes.items() if node.flags & AWAY and _held(leaving, n)]


def _held(leaving: Leaving, name: str) -> bool:
    return name in leaving.running or leaving.nodes[name].busy


def still_bound(output: str, declared: Collection[str]) -> dict[str, str]:
    """Node -> why it cannot go yet."""
    leaving = read(output, declared)
    if leaving.slurm == SILENT:
        return dict.fromkeys(leaving.nodes, "slurmctld does not answer")
    return {
        name: why
        for name, node in leaving.nodes.items()
        if (why := _bound(leaving, name) or _in_service(node))
    }
