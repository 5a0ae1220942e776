"""A burn-in: the same suite again and again, for a duration or until its first failure.

It is a run of runs. Each round is a plan of its own, with nonces of its own, and a walk through it
as any run has; what it came to is one line of `rounds.jsonl`. Checks that look at a node over time
(`over_time` in their modules) judge the stretches of all rounds together at the end, and those that
compare results bit by bit after every round.

Nothing here knows Slurm, files or the terminal: a round is made by whoever starts the loop.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from cluster import strict
from cluster.errors import PlumblineError, UsageError
from cluster.text import duration, printable
from validation import interrupts, typed
from validation.checks import same_bits, same_sums, soak, soaked
from validation.checks.comparison import ComparedNode
from validation.checks.registry import CHECKS
from validation.checks.same_sums import Sums
from validation.checks.soaked import NodeOverTime, Stretch
from validation.execution.journal import NotTheSame
from validation.model import INTERRUPTED, Key, Result, Tier, Verdict, settle, worst
from validation.plan import Plan
from validation.report.json import plain
from validation.tiers import Walk

log = logging.getLogger(__name__)

# Long, and tells no more when it is repeated.
ONCE = ("dcgm",)

# Judged at the end alone: half a burn-in says nothing of its last hour.
_AT_THE_END = ("drift", "soak_stragglers")


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to.

    began      UTC, ISO 8601
    at_s       how much of the burn-in was over when it began, without interruptions
    load_s     how long its nodes were under load
    counts     of its results, by verdict
    open       its results that are neither green nor skipped
    stretches  of all GPUs of all nodes
    sums       of all groups of nodes
    once       results of checks that only the first round makes
    boots      when each node was started, in Slurm's words
    """

    number: int
    began: str
    at_s: float
    seconds: float
    load_s: float
    counts: Mapping[str, int]
    open: tuple[Result, ...]
    stretches: tuple[Stretch, ...] = ()
    sums: tuple[Sums, ...] = ()
    once: tuple[Result, ...] = ()
    boots: Mapping[str, str] | None = None

    @property
    def verdict(self) -> Verdict:
        return worst([Verdict.PASS, *(result.verdict for result in self.open)])

    @property
    def end_s(self) -> float:
        return self.at_s + self.seconds

    def line(self) -> str:
        return json.dumps(plain(self), ensure_ascii=True, allow_nan=False) + "\n"


@dataclass(frozen=True, slots=True)
class Ended:
    """A burn-in that came to its end, or was interrupted.

    walk         of the last round
    results      one for each planned check: the worst of all rounds, and what was judged over time
    """

    rounds: tuple[Round, ...]
    walk: Walk
    results: tuple[Result, ...]
    interrupted: bool

    @property
    def notes(self) -> tuple[str, ...]:
        rounds = f"{len(self.rounds)} round{'' if len(self.rounds) == 1 else 's'}"
        done = self.rounds[-1].end_s if self.rounds else 0.0
        load = sum(item.load_s for item in self.rounds)
        notes = [f"{rounds} in {duration(done)}, {duration(load)} of it under load"]
        if (first := first_failure(self.rounds)) is not None:
            notes.append(f"first failure: {first}")
        return tuple(notes)


def first_failure(rounds: Iterable[Round]) -> str | None:
    """Which round failed first, when, and at what."""
    for item in rounds:
        for result in item.open:
            if result.verdict is Verdict.FAIL:
                what = f"{result.check} {result.subject.name}: {result.message}"
                return printable(f"{_when(item)} ({item.began}): {what}", 300)
    return None


def _when(item: Round) -> str:
    return f"round {item.number}, {duration(item.at_s)} after the start"


def loop(
    whole: Plan,
    plan_of: Callable[[int], Plan],
    walk_of: Callable[[int, Plan], Walk],
    keep: Callable[[Round], None],
    duration_s: float,
    clock: Callable[[], float],
    boots: Callable[[], Mapping[str, str]] = dict,
    before: Sequence[Round] = (),
    keep_going: bool = False,
) -> Ended:
    """Round after round until `duration_s` seconds are over, without what an interruption took.

    whole       what the burn-in owes
    plan_of     the plan of a round
    walk_of     walks through it
    keep        takes each round that is complete
    boots       when the nodes were started, as the round saw it
    before      rounds of parts of this burn-in before it was interrupted
    keep_going  whether it goes on after a failure

    A round that has begun comes to its end, so that the last one may end after the time. One that
    is interrupted does not count.
    """
    rounds = list(before)
    over_time = _OverTime(before)
    last: Walk | None = None
    interrupted = False
    while True:
        number, at_s = len(rounds) + 1, rounds[-1].end_s if rounds else 0.0
        began, start = datetime.now(timezone.utc).isoformat(timespec="seconds"), clock()
        try:
            plan = plan_of(number)
            walk = last = walk_of(number, plan)
            if walk.interrupted:
                interrupted = True
                break
            # One that is complete is written down as a whole, and counts.
            with interrupts.held():
                latest = _round(over_time, rounds, plan, walk, boots())
                latest = replace(
                    latest, number=number, began=began, at_s=at_s, seconds=clock() - start
                )
                rounds.append(latest)
                keep(latest)
        except NotTheSame:
            raise
        except (KeyboardInterrupt, PlumblineError) as error:
            if last is None:
                raise
            walk = last
            where = "after round" if len(rounds) == number else "round"
            log.error("%s %s: %s", where, number, str(error) or "interrupted")
            interrupted = True
            break
        if (latest.verdict is Verdict.FAIL and not keep_going) or latest.end_s >= duration_s:
            break
    results = _results(whole, walk, rounds, over_time)
    if interrupted:
        results = [_cut_short(result) for result in results]
    return Ended(tuple(rounds), walk, tuple(results), interrupted)


def _round(
    over_time: "_OverTime",
    rounds: Sequence[Round],
    plan: Plan,
    walk: Walk,
    boots: Mapping[str, str],
) -> Round:
    """What the walk came to; when it was is not told here."""
    over_time.add(walk, plan)
    settled = settle(plan.checks, walk.results)
    together = over_time.same_bits(settled)
    judged = {result.key for result in together}
    found = [
        *(r for r in settled if r.check not in _AT_THE_END and r.key not in judged),
        *together,
        *_started_again(plan, rounds, boots),
    ]
    return Round(
        number=0,
        began="",
        at_s=0.0,
        seconds=0.0,
        load_s=max(map(_load_s, over_time.of_last), default=0.0),
        counts=_counts(found),
        open=tuple(r for r in found if not r.verdict.green and r.verdict is not Verdict.SKIP),
        stretches=over_time.of_last,
        sums=over_time.sums_of_last,
        once=tuple(result for result in settled if result.check in ONCE),
        boots=boots,
    )


def _load_s(stretch: Stretch) -> float:
    """How long it was; of a window only its end is known."""
    ends = [window.at_ns for window in stretch.windows]
    return (ends[-1] - ends[0]) / 1e9 * len(ends) / max(1, len(ends) - 1)


def _counts(results: Iterable[Result]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for result in results:
        counts[result.verdict.value] = counts.get(result.verdict.value, 0) + 1
    return counts


def _started_again(plan: Plan, rounds: Sequence[Round], now: Mapping[str, str]) -> list[Result]:
    """A node that was started again between two rounds did not last."""
    before = (rounds[-1].boots or {}) if rounds else {}
    again = {name for name, boot in now.items() if before.get(name, boot) != boot}
    return [
        Result(
            soak.NAME,
            Tier.NODE,
            check.subject,
            Verdict.FAIL,
            f"was started again during the burn-in: {now[check.subject.name]}",
        )
        for check in plan.checks
        if check.check == soak.NAME and check.subject.name in again
    ]


class _OverTime:
    """The nodes in all rounds so far, and the sums of all groups."""

    def __init__(self, before: Sequence[Round]) -> None:
        self.nodes: dict[str, NodeOverTime] = {}
        self.of_last: tuple[Stretch, ...] = ()
        self.sums_of_last: tuple[Sums, ...] = ()
        self._sums = [item for each in before for item in each.sums]
        self._earlier: dict[str, list[tuple[Stretch, ...]]] = {}
        for each in before:
            for host in {stretch.host for stretch in each.stretches}:
                own = tuple(stretch for stretch in each.stretches if stretch.host == host)
                self._earlier.setdefault(host, []).append(own)

    def add(self, walk: Walk, plan: Plan) -> None:
        members = [
            ComparedNode(item.job, item.reply, plan.rules[item.job.nodes[0].hardware])
            for item in walk.jobs
            if item.job.payload == soaked.PAYLOAD
        ]
        nodes, _ = soaked.over_time(soak.NAME, members)
        for node in nodes:
            host = node.job.hosts[0]
            known = self.nodes.get(host)
            if known is None and host in self._earlier:
                known = replace(node, rounds=tuple(self._earlier.pop(host)))
            self.nodes[host] = known.and_then(node) if known else node
        self.of_last = tuple(stretch for node in nodes for stretch in node.rounds[0])
        sums = [
            same_sums.sums(item.job, item.reply)
            for item in walk.jobs
            if item.job.payload == same_sums.PAYLOAD and item.reply is not None
        ]
        self.sums_of_last = tuple(item for item in sums if item is not None)
        self._sums += self.sums_of_last

    def same_bits(self, settled: Sequence[Result]) -> list[Result]:
        """Of the nodes and groups that answered, whether all rounds so far came out the same.

        It knows more than the round by itself: which of two that differ now is as it was before.
        """
        answered = {stretch.host for stretch in self.of_last}
        judged = same_bits.over_time(tuple(self.nodes.values()))
        found = [result for result in judged if result.subject.name in answered]
        differing = same_sums.over_rounds(self._sums)
        for result in settled:
            if result.check != same_sums.NAME or result.verdict is Verdict.FAIL:
                continue
            if (message := differing.get(result.subject.name)) is not None:
                failed = replace(result, verdict=Verdict.FAIL, message=message, blamed=None)
                found.append(failed)
        planned = {result.key for result in settled}
        return [result for result in found if result.key in planned]

    def judged(self) -> dict[Key, Result]:
        """What is judged of all rounds together, by the checks that look at a node over time."""
        nodes = tuple(self.nodes.values())
        results = [
            result
            for check in CHECKS.values()
            if check.over_time is not None
            for result in check.over_time(nodes)
        ]
        return {result.key: result for result in results}


def _results(
    whole: Plan, walk: Walk, rounds: Sequence[Round], over_time: _OverTime
) -> list[Result]:
    """Of each planned check the worst result of all rounds, or what was judged of all of them."""
    found: dict[Key, Result] = {}
    for item in rounds:
        for result in item.open:
            other = found.get(result.key)
            if other is None or worst([result.verdict, other.verdict]) is not other.verdict:
                message = printable(f"{_when(item)}: {result.message}", 300)
                found[result.key] = replace(result, message=message)
    skipped = {check.key for check in whole.checks if check.skip is not None}
    judged = {r.key: r for item in rounds for r in item.once} | over_time.judged()
    together = {key: result for key, result in judged.items() if key not in skipped}
    latest = {result.key: result for result in walk.results}
    results = [
        own
        for check in whole.checks
        if (own := found.pop(check.key, None) or together.get(check.key) or latest.get(check.key))
    ]
    return settle(whole.checks, [*results, *found.values()])


def _cut_short(result: Result) -> Result:
    """A burn-in that was interrupted proves nothing of its end."""
    if not result.verdict.green:
        return result
    return replace(result, verdict=Verdict.FAIL, message=INTERRUPTED, blamed=())


# --- rounds that are kept --------------------------------------------------------------------


def read(text: str, place: str) -> tuple[Round, ...]:
    """The rounds of earlier parts. The last line may be torn; raises UsageError for any other."""
    rounds = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            rounds.append(typed.read(Round, strict.parse_json(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{place}, line {number} cannot be read: {error!r}") from error
    return tuple(rounds)
