"""Idle nodes tested one after another, the one whose test is oldest first (`--background`).

Nobody waits for it: jobs of others pre-empt its jobs, or, where Slurm does not pre-empt, it starts
none while any job waits. A test that was pre-empted says nothing of its node, which comes first the
next time.

Nothing here knows Slurm or the terminal: whoever starts the loop says what is idle, and tests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from cluster.slurm import node_states
from cluster.slurm.node_states import NodeState
from validation.background.state import LastTest, State
from validation.model import (
    EXIT_CODES,
    INTERRUPTED,
    JobReport,
    Outcome,
    Result,
    RunReport,
    Verdict,
    worst,
)

# As Slurm tells a job's user: "*** JOB 7 ON gpu1 CANCELLED AT … DUE TO PREEMPTION ***".
_PREEMPTED = "DUE TO PREEMPTION"


@dataclass(frozen=True, slots=True)
class Trial:
    """One test of one node, as it came out; the verdict is None where it was cut short."""

    node: str
    verdict: Verdict | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """What one start of the program came to. `ended` says why no more was tested."""

    tests: tuple[Trial, ...]
    ended: str
    due: int  # nodes that should have been tested when it began

    @property
    def exit_code(self) -> int:
        """0 where all that was tested passed, or nothing had to be; 1 for a failure; 3 where
        nothing could be proven of a node that was due."""
        verdicts = [test.verdict for test in self.tests if test.verdict is not None]
        if not verdicts:
            return EXIT_CODES[Verdict.INCONCLUSIVE if self.due else Verdict.PASS]
        return EXIT_CODES[worst(verdicts)]


def due(nodes: Iterable[str], state: State, now: datetime, every: timedelta) -> list[str]:
    """The nodes whose last test is older than `every`: the untested, then the oldest first."""
    ages = {name: state.tested(name) for name in nodes}
    old = [name for name, at in ages.items() if at is None or now - at >= every]
    earliest = datetime.min.replace(tzinfo=timezone.utc)
    return sorted(old, key=lambda name: ages[name] or earliest)


def idle(names: Iterable[str], states: Mapping[str, NodeState]) -> list[str]:
    """Those on which nothing runs, and which nobody reserved."""
    return [
        name
        for name in names
        if name in states
        and node_states.free(states[name])
        and node_states.split(states[name].state)[0] == "idle"
    ]


def judged(node: str, results: Iterable[Result], jobs: Iterable[JobReport]) -> Trial:
    """What a test says of a node.

    What was pre-empted, waited for others or was interrupted says nothing of it.
    """
    mine = [item for item in jobs if node in item.job.hosts]
    cut_short = [item for item in mine if _preempted(item)]
    silent = {check for item in cut_short for check in item.job.checks}
    own = [
        result
        for result in results
        if node in result.subject.nodes and result.verdict is not Verdict.SKIP
    ]
    heard = [r for r in own if r.check not in silent and r.message != INTERRUPTED]
    failed = next((result for result in heard if result.verdict is Verdict.FAIL), None)
    if failed is not None:
        return Trial(node, Verdict.FAIL, f"{failed.check}: {failed.message}")
    if cut_short:
        return Trial(node, None, f"pre-empted during {cut_short[0].job.name}")
    if any(result.message == INTERRUPTED for result in own):
        return Trial(node, None, INTERRUPTED)
    decisive = next((result for result in heard if not result.verdict.green), None)
    message = f"{decisive.check}: {decisive.message}" if decisive else ""
    return Trial(node, worst(result.verdict for result in heard), message)


def told(report: RunReport, trials: Iterable[Trial]) -> RunReport | None:
    """The report without what says nothing: nodes whose test was cut short, and of those that
    failed before that what was cut short. None where nothing is left.
    """
    verdicts = {trial.node: trial.verdict for trial in trials if trial.verdict is not None}
    silent = {
        (node, check)
        for item in report.jobs
        if _preempted(item)
        for node in item.job.hosts
        for check in item.job.checks
    }
    results = tuple(
        result
        for result in report.results
        if result.message != INTERRUPTED
        and verdicts.keys() >= set(result.subject.nodes)
        and not any((node, result.check) in silent for node in result.subject.nodes)
    )
    if not results:
        return None
    nodes = tuple(item for item in report.nodes if item.node.name in verdicts)
    return replace(report, results=results, nodes=nodes, verdict=worst(verdicts.values()))


def _preempted(item: JobReport) -> bool:
    reply = item.reply
    if reply is None:
        return False
    waited = reply.outcome is Outcome.QUEUE_LIMIT  # somebody else has the node meanwhile
    return waited or _PREEMPTED in reply.stderr or reply.outcome is Outcome.CANCELLED


def loop(
    nodes: Sequence[str],
    state: State,
    *,
    every: timedelta,
    at_once: int,
    left_s: Callable[[], float],
    blocked: Callable[[], str],
    states: Callable[[], Mapping[str, NodeState]],
    test: Callable[[Sequence[str]], Sequence[tuple[Trial, LastTest]]],
    keep: Callable[[State], None],
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
) -> Session:
    """Tests what is due, so many nodes at a time, until nothing of it is idle or the time is over.

    left_s   seconds until the time is over; no test begins that is likely to take longer
    blocked  why no test may begin now; empty where one may
    states   what Slurm says of its nodes now
    test     tests these nodes; of each what came out, and what is kept of it
    keep     takes the new state after each test
    """
    waiting = due(nodes, state, now(), every)
    begun_with = len(waiting)
    tests: list[Trial] = []
    while True:
        if not waiting:
            ended = "all nodes were tested" if begun_with else "no node is due"
            break
        if left_s() <= state.longest_s:
            ended = "the time is over"
            break
        if reason := blocked():
            ended = reason
            break
        free = idle(waiting, states())[:at_once]
        if not free:
            ended = f"none of the {len(waiting)} nodes that are due is idle"
            break
        for outcome, tested in test(free):
            tests.append(outcome)
            if outcome.verdict is not None:
                state = state.with_test(outcome.node, tested)
                keep(state)
        # One that was pre-empted comes first the next time, and not at once again.
        waiting = [name for name in waiting if name not in free]
    return Session(tuple(tests), ended, begun_with)
