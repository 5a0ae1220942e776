"""Jobs brought to their end: each is judged as soon as it answers, and none is left behind."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cluster.errors import PlumblineError
from cluster.slurm import node_states
from cluster.slurm.node_states import NodeState
from validation import allocations, interrupts
from validation.model import Job, Outcome, Reply
from validation.plan import AT_ONCE
from validation.slurm.client import Batch, Progress, SlurmClient, SlurmDown
from validation.tiers.ledger import Ledger

log = logging.getLogger(__name__)

_PATIENCE = 5  # polls that may fail in a row before the login node is given up
_SLACK_S = 120  # what a job may take beyond its limits


def run_lanes(
    ledger: Ledger,
    client: SlurmClient,
    lanes: Sequence[Sequence[Job]],
    states: Mapping[str, NodeState],
    free: frozenset[str],
    interval_s: float,
    judge: Callable[[Job, Reply], None] | None = None,
) -> None:
    """Run the lanes' jobs to their end and judge each as soon as it answers."""
    judge = judge or ledger.judge
    lanes = ledger.recall(lanes, judge)
    if not lanes:
        return
    waiting = {job.name: job for lane in lanes for job in lane}

    def take(progress: Progress) -> None:
        ledger.observer.progress(progress)
        replies = [reply for reply in progress.replies if reply.job in waiting]
        # A node may have gone down meanwhile: only Slurm can tell which.
        now = states
        if any(_ended_badly(reply) for reply in replies):
            now = states_now(client, states)
        for reply in replies:
            job = waiting.pop(reply.job)
            seen = tuple(now[name] for name in job.hosts if name in now)
            busy = any(map(node_states.busy, seen)) and reply.outcome is Outcome.QUEUE_LIMIT
            judge(job, replace(reply, busy=busy, states=seen))

    shared = allocations.share(lanes, free, AT_ONCE)
    batch = client.prepare(lanes, AT_ONCE, shared, ledger.slowest_start_s())
    lost = "the login node no longer knows it"
    interrupted = False
    try:
        batch.start()
        lost = _follow(batch, take, _longest(lanes), interval_s) or lost
    except KeyboardInterrupt:
        interrupted = True
        lost = "the run was interrupted"
        raise
    except PlumblineError as error:
        lost = str(error)
        raise
    finally:
        # Once begun it is brought to its end, whatever is pressed meanwhile.
        with interrupts.held():
            if waiting:
                ledger.observer.stage("cancelling the jobs that are left")
                _quietly(lambda: take(batch.cancel()))
            outcome = Outcome.CANCELLED if interrupted else Outcome.LOST
            for job in tuple(waiting.values()):
                judge(job, Reply(job.name, outcome, reason=lost))
            _quietly(batch.close)


def free_of(states: Mapping[str, NodeState]) -> frozenset[str]:
    return frozenset(name for name, state in states.items() if node_states.free(state))


def _ended_badly(reply: Reply) -> bool:
    return reply.outcome in (Outcome.QUEUE_LIMIT, Outcome.RUN_LIMIT) or (
        reply.outcome is Outcome.EXITED and reply.exit_code != 0
    )


def states_now(client: SlurmClient, before: Mapping[str, NodeState]) -> Mapping[str, NodeState]:
    try:
        return client.node_states()[1]
    except (PlumblineError, SlurmDown) as error:
        log.warning("Slurm could not be asked again: %s", error)
        return before


def _follow(
    batch: Batch, take: Callable[[Progress], None], limit_s: float, interval_s: float
) -> str:
    """Poll until the batch is done; why it was given up, if it was.

    limit_s is how long nothing may end: as long as jobs end, the launcher does its work.
    """
    deadline = time.monotonic() + limit_s
    failures = 0
    while True:
        try:
            progress = batch.poll()
        except PlumblineError as error:
            failures += 1
            log.warning("%s", error)
            if failures >= _PATIENCE:
                return f"lost contact: {error}"
        else:
            failures = 0
            take(progress)
            if progress.replies:
                deadline = time.monotonic() + limit_s
            if progress.done or progress.lost:
                return progress.lost
        if time.monotonic() > deadline:
            return f"no job ended for {limit_s:.0f} s"
        time.sleep(interval_s)


def _longest(lanes: Sequence[Sequence[Job]]) -> float:
    return max(job.longest_s for lane in lanes for job in lane) + _SLACK_S


def _quietly(action: Callable[[], Any]) -> None:
    """Tidying up must not hide the results."""
    try:
        action()
    except PlumblineError as error:
        log.warning("%s", error)
