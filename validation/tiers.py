"""Walks through a plan: Slurm's own view, then every node for itself, then all nodes together.

A node that fails a tier takes no part in the next. Whatever happens on the way, every check of the
plan ends with a result: what could not run says why, and is a failure.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from validation.checks import CHECKS, slurm_state
from validation.errors import PlumblineError
from validation.model import (
    Job,
    JobReport,
    NodeState,
    Outcome,
    PlannedCheck,
    Reply,
    Result,
    Subject,
    Tier,
    Verdict,
    printable,
    worst,
)
from validation.plan import ALWAYS, AT_ONCE, Plan, shrink
from validation.slurm.client import Batch, Progress, SlurmClient, SlurmDown

log = logging.getLogger(__name__)

_PATIENCE = 5  # polls that may fail in a row before the login node is given up
_SLACK_S = 120  # what a batch may take beyond the sum of its jobs' limits

# Slurm's reasons for waiting that mean: others are using what this job needs.
_BUSY_REASONS = ("Resources", "Priority")


class Observer(Protocol):
    """Who wants to see a run while it goes on."""

    def stage(self, text: str) -> None: ...

    def progress(self, progress: Progress) -> None: ...

    def job(self, report: JobReport) -> None: ...

    def result(self, result: Result) -> None: ...


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk through the tiers found out."""

    results: tuple[Result, ...]
    jobs: tuple[JobReport, ...]
    states: Mapping[str, str]
    slurm: str
    interrupted: bool


class _Ledger:
    """Results and jobs so far; tells the observer of each."""

    def __init__(self, plan: Plan, observer: Observer) -> None:
        self.plan = plan
        self.observer = observer
        self.results: list[Result] = []
        self.jobs: list[JobReport] = []
        self.states: dict[str, str] = {}
        self.slurm = ""

    def add(self, result: Result) -> None:
        self.results.append(result)
        self.observer.result(result)

    def judge(self, job: Job, reply: Reply) -> None:
        report = JobReport(job, reply)
        self.jobs.append(report)
        self.observer.job(report)
        for name in job.checks:
            self.add(self._evaluated(name, job, reply))

    def _evaluated(self, name: str, job: Job, reply: Reply) -> Result:
        evaluate = CHECKS[name].evaluate
        assert evaluate is not None  # jobs are planned for checks that judge one
        try:
            return evaluate(job, reply, self.plan.rules[job.nodes[0].hardware])
        except Exception as error:
            # A fault of the check itself must not hide the other results, nor pass.
            log.exception("%s: judging %s failed", name, job.name)
            message = printable(f"the check itself failed: {error!r}", 300)
            return Result(name, job.tier, job.subject, Verdict.FAIL, message)

    def deserted(self, job: Job, survivors: set[str]) -> None:
        """A job that cannot run for want of nodes: the fault of those that are missing."""
        missing = tuple(host for host in job.hosts if host not in survivors)
        message = f"only {len(job.hosts) - len(missing)} of {len(job.hosts)} nodes left"
        for name in job.checks:
            self.add(Result(name, job.tier, job.subject, Verdict.FAIL, message, blamed=missing))

    def fail_rest(self, wanted: Callable[[PlannedCheck], bool], message: str) -> None:
        """A failure for each planned check that has no result yet."""
        known = {result.key for result in self.results}
        for check in self.plan.checks:
            if check.key not in known and wanted(check):
                verdict = Verdict.FAIL
                if check.skip is not None:
                    verdict, text = Verdict.SKIP, check.skip
                else:
                    text = message
                self.add(Result(check.check, check.tier, check.subject, verdict, text))

    def survivors(self) -> set[str]:
        """Nodes whose every result of the node tier is green."""
        verdicts: dict[str, list[Verdict]] = {node.name: [] for node in self.plan.nodes}
        for result in self.results:
            if result.tier is Tier.NODE:
                verdicts[result.subject.name].append(result.verdict)
        return {name for name, seen in verdicts.items() if seen and worst(seen).green}


def walk(plan: Plan, client: SlurmClient, observer: Observer, interval_s: float = 1.0) -> Walk:
    """Run the plan. Returns after Ctrl-C too, with what was known by then."""
    ledger = _Ledger(plan, observer)
    interrupted = False
    try:
        _tiers(ledger, client, interval_s)
    except KeyboardInterrupt:
        interrupted = True
    except PlumblineError as error:
        if not ledger.results:
            raise  # nothing was seen of the cluster: nothing to report on
        log.error("%s", error)
        ledger.fail_rest(lambda check: True, f"not run: {error}")
    ledger.fail_rest(
        lambda check: True,
        "not run: the run was interrupted" if interrupted else "no result",
    )
    return Walk(tuple(ledger.results), tuple(ledger.jobs), ledger.states, ledger.slurm, interrupted)


def _tiers(ledger: _Ledger, client: SlurmClient, interval_s: float) -> None:
    plan, observer = ledger.plan, ledger.observer
    observer.stage("asking Slurm for its nodes")
    try:
        ledger.slurm, states = client.node_states()
    except SlurmDown as down:
        ledger.fail_rest(lambda check: check.check == ALWAYS, str(down))
        ledger.fail_rest(lambda check: True, f"not run: {down}")
        return
    ledger.states |= {name: state.state for name, state in states.items()}
    for node in plan.nodes:
        result = slurm_state.evaluate(node, states.get(node.name))
        ledger.add(result)
        if not result.verdict.green:
            ledger.fail_rest(_node_check_of(node.name), f"not run: {result.message}")

    usable = ledger.survivors()
    lanes = [[job] for job in plan.node_jobs if job.hosts[0] in usable]
    if lanes:
        observer.stage(f"node tier: {len(lanes)} nodes")
        _run(ledger, client, lanes, states, interval_s)

    survivors = ledger.survivors()
    lanes = []
    for group in plan.groups:
        lane = []
        for job in group.jobs:
            if smaller := shrink(job, survivors):
                lane.append(smaller)
            else:
                ledger.deserted(job, survivors)
        if lane:
            lanes.append(lane)
    if lanes:
        observer.stage(f"cluster tier: {', '.join(job.name for lane in lanes for job in lane)}")
        _run(ledger, client, lanes, states, interval_s)


def _node_check_of(name: str) -> Callable[[PlannedCheck], bool]:
    subject = Subject.node(name)
    return lambda check: check.tier is Tier.NODE and check.subject == subject


def _run(
    ledger: _Ledger,
    client: SlurmClient,
    lanes: Sequence[Sequence[Job]],
    states: Mapping[str, NodeState],
    interval_s: float,
) -> None:
    """Run the lanes' jobs to their end and judge each as soon as it answers."""
    waiting = {job.name: job for lane in lanes for job in lane}

    def take(progress: Progress) -> None:
        ledger.observer.progress(progress)
        for reply in progress.replies:
            if job := waiting.pop(reply.job, None):
                busy = reply.reason in _BUSY_REASONS or any(
                    slurm_state.busy(states[name]) for name in job.hosts if name in states
                )
                ledger.judge(job, replace(reply, busy=busy))

    batch = client.prepare(lanes, AT_ONCE)
    lost = "the login node forgot it"
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
    finally:
        if waiting:
            ledger.observer.stage("cancelling the jobs that are left")
            _quietly(lambda: take(batch.cancel()))
        outcome = Outcome.CANCELLED if interrupted else Outcome.LOST
        for job in tuple(waiting.values()):
            ledger.judge(job, Reply(job.name, outcome, reason=lost))
        _quietly(batch.close)


def _follow(
    batch: Batch, take: Callable[[Progress], None], limit_s: float, interval_s: float
) -> str:
    """Poll until the batch is done; why it was given up, if it was."""
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
            if progress.done or progress.lost:
                return progress.lost
        if time.monotonic() > deadline:
            return f"the jobs did not end within {limit_s:.0f} s"
        time.sleep(interval_s)


def _longest(lanes: Sequence[Sequence[Job]]) -> float:
    limits = [sum(job.queue_limit_s + job.run_limit_s for job in lane) for lane in lanes]
    return -(-len(lanes) // AT_ONCE) * max(limits) + _SLACK_S


def _quietly(action: Callable[[], Any]) -> None:
    """Tidying up must not hide the results."""
    try:
        action()
    except PlumblineError as error:
        log.warning("%s", error)
