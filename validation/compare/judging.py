"""What got worse between two sets of runs, what did not, and what cannot be told.

A figure is compared as the ratio to what the same node measured otherwise, so nodes need not be
alike. It is asked for twice: everywhere (the median over the nodes) and on each node (its worst
GPU, beside the other nodes of the same run). Two things make it worse: it moved by `least` or more,
and chance alone makes no such move in one of a hundred comparisons (of twenty where there are too
few runs or nodes for that), all figures taken together.

With three runs or more on each side (or as many ways to call them before and after) the runs are
the sample. With fewer, the nodes are, for what each measures by itself: each against itself; a
single node is found only where it moved as no other did. Where there are too few of both, and for
what nodes measure with each other, it cannot be told.
"""

import enum
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from validation.checks.registry import CHECKS
from validation.compare import chance
from validation.history.figures import Worse, pooled, worse
from validation.history.runs import Figure, Judged
from validation.model import Tier

LEAST = 0.03  # a smaller change is not named, however sure it is
LEVEL, LEVEL_OF_FEW = 0.01, 0.05  # of all figures together
FEWEST_WAYS = 20  # to call runs before and after, or to turn signs: below, no p of 5 % is possible
MANY_WAYS = 100  # from which on p of 1 % is
FEWEST_NODES = 5  # as a sample: 2^5 signs
FEWEST_BESIDE = 8  # nodes of which one may be found to have moved as no other did
FAR = 8.0  # spreads of the other nodes, from their median
FEWEST_VALUES = 4  # of a node in a run, such as its GPUs': one value that is far off shows nothing
ALONE = 2.5  # times `least`, that a node has to move for that
_SEVERAL = 3  # runs before, of which one may have been as bad
_REMOVED = 4  # nodes from which on what all of them do is taken off each
_MORE_RUNS = "to tell whether by chance takes more runs (3 on each side)"
_FLOOR = 0.001  # of a figure that hardly varies, as a ratio


class Outcome(enum.Enum):
    WORSE = "worse"
    CANNOT_TELL = "cannot tell"
    NOT_WORSE = "not worse"


@dataclass(frozen=True, slots=True)
class Side:
    """A run on one side of the comparison."""

    run_id: str
    suite: str
    started: float
    results: tuple[Judged, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is said of one figure somewhere, or of a verdict.

    change  of the medians, as a share: -0.15 is 15 % less
    delta   Cliff's, of the values that were tested; None where there is one on each side
    p       corrected for all figures; None where nothing was tested by chance
    """

    outcome: Outcome
    check: str
    figure: str
    where: str
    why: str
    unit: str = ""
    before: float | None = None
    after: float | None = None
    change: float | None = None
    delta: float | None = None
    p: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    before: tuple[str, ...]
    after: tuple[str, ...]
    sample: str  # "runs" or "nodes"
    findings: tuple[Finding, ...]

    def of(self, outcome: Outcome) -> list[Finding]:
        return [finding for finding in self.findings if finding.outcome is outcome]

    @property
    def exit_code(self) -> int:
        if self.of(Outcome.WORSE):
            return 1
        return 3 if self.of(Outcome.CANNOT_TELL) or not self.findings else 0


def compare(before: Sequence[Side], after: Sequence[Side], least: float = LEAST) -> Comparison:
    """Both sides have a run at least."""
    runs = (*before, *after)
    tables = _tables(runs)
    by_runs = chance.relabellings(len(before), len(after)) >= FEWEST_WAYS and len(runs) > 2
    findings = [*_verdicts(before, after)]
    whole = [table for table in tables if table.nodes]
    if by_runs:
        findings += _by_runs(whole, len(before), least)
    else:
        findings += _by_nodes(whole, len(before), least)
    findings += _missing(tables, len(before))
    return Comparison(
        tuple(run.run_id for run in before),
        tuple(run.run_id for run in after),
        "runs" if by_runs else "nodes",
        tuple(sorted(findings, key=_order)),
    )


_ORDER = tuple(Outcome)


def _order(finding: Finding) -> tuple[int, str, str, str]:
    return _ORDER.index(finding.outcome), finding.check, finding.figure, finding.where


# --- figures -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    """A node's figure, by run: the median and the worst over its GPUs, larger is worse."""

    middle: tuple[float, ...]  # logarithms
    worst: tuple[float, ...]
    values: tuple[float, ...]  # the median, as it was measured
    worst_values: tuple[float, ...]
    count: int  # of values that there are in each run


@dataclass(slots=True)
class _Table:
    """A figure of all nodes that have it in every run, and those that have it in some."""

    check: str
    name: str
    unit: str
    direction: Worse
    nodes: dict[str, _Row] = field(default_factory=dict)
    some: dict[str, tuple[bool, ...]] = field(default_factory=dict)  # by node, of each run


def _tables(runs: Sequence[Side]) -> list[_Table]:
    found: dict[tuple[str, str, str], dict[str, dict[int, list[float]]]] = {}
    for number, run in enumerate(runs):
        for figure in run.figures:
            key = (figure.check, pooled(figure.name), figure.unit)
            by_node = found.setdefault(key, {})
            by_node.setdefault(figure.subject, {}).setdefault(number, []).append(figure.value)
    tables = []
    for (check, name, unit), by_node in found.items():
        direction = worse(check, name.replace("GPU to GPU", "GPU 0 to 1"), unit)
        if direction not in (Worse.LESS, Worse.MORE):
            continue
        table = _Table(check, name, unit, direction)
        for node, by_run in by_node.items():
            if len(by_run) < len(runs):
                table.some[node] = tuple(number in by_run for number in range(len(runs)))
            else:
                table.nodes[node] = _row([by_run[number] for number in range(len(runs))], direction)
        tables.append(table)
    return tables


def _row(of_runs: Sequence[Sequence[float]], direction: Worse) -> _Row:
    worst_of = min if direction is Worse.LESS else max
    values = tuple(statistics.median(values) for values in of_runs)
    worst_values = tuple(worst_of(values) for values in of_runs)
    sign = -1.0 if direction is Worse.LESS else 1.0
    positive = [value for value in (*values, *worst_values) if value > 0]
    # What fell to nothing is far away, and not infinitely far.
    least = statistics.median(positive) * 1e-6 if positive else 1.0

    def logs(numbers: Sequence[float]) -> tuple[float, ...]:
        return tuple(sign * math.log(max(number, least)) for number in numbers)

    count = min(map(len, of_runs))
    return _Row(logs(values), logs(worst_values), values, worst_values, count)


def _median_of_runs(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(statistics.median(column) for column in zip(*rows, strict=True))


def _centred(row: Sequence[float]) -> tuple[float, ...]:
    middle = statistics.median(row)
    return tuple(value - middle for value in row)


# --- the runs are the sample -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Question:
    table: _Table
    where: str
    node: str | None  # None: everywhere
    values: tuple[float, ...]


EVERYWHERE = "everywhere"


def _by_runs(tables: Sequence[_Table], before: int, least: float) -> Iterator[Finding]:
    questions = [question for table in tables for question in _questions(table)]
    floors = _floors(questions)
    tests = [
        chance.Test(question.values, floor)
        for question, floor in zip(questions, floors, strict=True)
    ]
    level = _level(
        chance.relabellings(before, len(questions[0].values) - before) if questions else 0
    )
    for question, p in zip(questions, chance.familywise(tests, before), strict=True):
        clear = _moved(question.values, before) >= math.log1p(least)
        outcome = Outcome.WORSE if clear and p <= level else Outcome.NOT_WORSE
        if outcome is Outcome.WORSE:
            why = "it moved, and more than it varies"
        else:
            why = "within its spread" if clear else f"moved by less than {least:.0%}"
        yield _finding(question, before, outcome, why, p)


def _level(ways: int) -> float:
    return LEVEL if ways >= MANY_WAYS else LEVEL_OF_FEW


def _questions(table: _Table) -> Iterator[_Question]:
    rows = table.nodes
    removed = len(rows) >= _REMOVED
    if len(rows) == 1 or removed:
        middle = _median_of_runs([_centred(row.middle) for row in rows.values()])
        where = EVERYWHERE if removed else next(iter(rows))
        yield _Question(table, where, None, middle)
    if len(rows) == 1:
        return
    common = _median_of_runs([_centred(row.worst) for row in rows.values()])
    for node, row in rows.items():
        own = _centred(row.worst)
        if removed:
            own = tuple(value - all_ for value, all_ in zip(own, common, strict=True))
        yield _Question(table, node, node, own)


def _floors(questions: Sequence[_Question]) -> list[float]:
    """What is added to each question's spread: that which the same question has elsewhere.

    A spread of ten values is itself uncertain; one that is small by chance would be a finding. It
    is the same however runs are called.
    """
    spreads: dict[tuple[int, bool], list[float]] = {}
    for question in questions:
        kind = (id(question.table), question.node is None)
        spreads.setdefault(kind, []).append(statistics.pstdev(question.values))
    return [
        _FLOOR
        + (
            0.0
            if question.node is None
            else statistics.median(spreads[id(question.table), question.node is None])
        )
        for question in questions
    ]


def _moved(values: Sequence[float], before: int) -> float:
    return statistics.median(values[before:]) - statistics.median(values[:before])


def _finding(
    question: _Question, before: int, outcome: Outcome, why: str, p: float | None
) -> Finding:
    table = question.table
    rows = table.nodes.values() if question.node is None else [table.nodes[question.node]]
    each = [row.values if question.node is None else row.worst_values for row in rows]
    values = _median_of_runs(each)
    was, is_ = statistics.median(values[:before]), statistics.median(values[before:])
    sign = -1.0 if table.direction is Worse.LESS else 1.0
    delta = None
    if len(values) > 2:
        delta = sign * chance.cliffs_delta(question.values[:before], question.values[before:])
    return Finding(
        *(outcome, table.check, table.name, question.where, why, table.unit),
        before=was,
        after=is_,
        change=is_ / was - 1 if was else None,
        delta=delta,
        p=p,
    )


# --- the nodes are the sample ------------------------------------------------------------------


def _by_nodes(tables: Sequence[_Table], before: int, least: float) -> Iterator[Finding]:
    groups: dict[tuple[str, ...], list[_Table]] = {}
    for table in tables:
        if len(table.nodes) >= FEWEST_NODES and _alone(table.check):
            groups.setdefault(tuple(table.nodes), []).append(table)
    for nodes, alike in groups.items():
        moves = [[_moved(table.nodes[node].middle, before) for node in nodes] for table in alike]
        level = _level(2 ** len(nodes))
        # All groups together are to keep the level.
        ps = [min(p * len(groups), 1.0) for p in chance.sign_flips(moves, _FLOOR)]
        for table, of_nodes, p in zip(alike, moves, ps, strict=True):
            clear = statistics.median(of_nodes) >= math.log1p(least)
            outcome = Outcome.WORSE if clear and p <= level else Outcome.NOT_WORSE
            if outcome is Outcome.WORSE:
                why = f"so it is on most of {len(nodes)} nodes"
            else:
                why = "within its spread" if clear else f"moved by less than {least:.0%}"
            yield _of_nodes(table, before, outcome, why, p)
    for table in tables:
        if len(table.nodes) >= FEWEST_NODES and not _alone(table.check):
            yield _of_one_network(table, before, least)
        yield from _single(table, before, least)


def _alone(check: str) -> bool:
    """Whether each node measures it by itself, so that one says something the others do not."""
    return check in CHECKS and CHECKS[check].info.tier is Tier.NODE


def _of_one_network(table: _Table, before: int, least: float) -> Finding:
    """What nodes measure with each other goes up and down on all of them: they are one sample."""
    moved = statistics.median(_moved(row.middle, before) for row in table.nodes.values())
    if moved >= math.log1p(least):
        outcome, why = Outcome.CANNOT_TELL, f"it moved; {_MORE_RUNS}"
    else:
        outcome, why = Outcome.NOT_WORSE, f"moved by less than {least:.0%}"
    return _of_nodes(table, before, outcome, why, None)


def _of_nodes(table: _Table, before: int, outcome: Outcome, why: str, p: float | None) -> Finding:
    middle = _median_of_runs([row.middle for row in table.nodes.values()])
    finding = _finding(_Question(table, EVERYWHERE, None, middle), before, outcome, why, p)
    return finding


def _single(table: _Table, before: int, least: float) -> Iterator[Finding]:
    """Each node by itself: where it moved as no other did; or whether that cannot be told.

    What one value did in a run or two may be chance, whatever its size: noise has heavy tails. Of
    a node to be worse, the median of several values has to have moved.
    """
    enough = len(table.nodes) >= FEWEST_BESIDE
    middle = {node: _moved(row.middle, before) for node, row in table.nodes.items()}
    far_middle = _far(middle.values(), least) if enough else math.inf
    worst_of = {node: _moved(row.worst, before) for node, row in table.nodes.items()}
    far = _far(worst_of.values(), least) if enough else math.log1p(least)
    for node, row in table.nodes.items():
        question = _Question(table, node, node, row.worst)
        if row.count >= FEWEST_VALUES and middle[node] >= far_middle:
            why = f"most of its {row.count} values moved as no other node's did"
            yield _finding(question, before, Outcome.WORSE, why, None)
        elif worst_of[node] >= far and not _as_before(row.worst, before):
            why = f"it moved; {_MORE_RUNS}"
            yield _finding(question, before, Outcome.CANNOT_TELL, why, None)
        elif len(table.nodes) < FEWEST_NODES:
            small = worst_of[node] < math.log1p(least)
            why = f"moved by less than {least:.0%}" if small else "as in some run before"
            yield _finding(question, before, Outcome.NOT_WORSE, why, None)


def _as_before(values: Sequence[float], before: int) -> bool:
    """Whether one of several runs before was as bad."""
    return before >= _SEVERAL and statistics.median(values[before:]) <= max(values[:before])


def _far(moves: Collection[float], least: float) -> float:
    """From where on a node's move is unlike that of the others, and worth a name."""
    apart = FAR * (chance.spread(list(moves)) + _FLOOR)
    return statistics.median(moves) + max(apart, math.log1p(ALONE * least))


# --- verdicts, and what is gone ----------------------------------------------------------------


def _verdicts(before: Sequence[Side], after: Sequence[Side]) -> Iterator[Finding]:
    """What passed in each run before that judged it, and fails in each after."""
    was, is_ = _given(before), _given(after)
    for key, verdicts in is_.items():
        if set(verdicts) == {"fail"} and set(was.get(key, ())) and "fail" not in was[key]:
            check, where = key
            if green := {"pass", "warn"} & set(was[key]):
                why = f"{'/'.join(sorted(green))} before, fail now"
                yield Finding(Outcome.WORSE, check, "verdict", where, why)


def _given(runs: Sequence[Side]) -> Mapping[tuple[str, str], list[str]]:
    given: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for result in run.results:
            if result.verdict not in ("skip", "inconclusive"):
                given.setdefault((result.check, result.subject), []).append(result.verdict)
    return given


def _missing(tables: Sequence[_Table], before: int) -> Iterator[Finding]:
    """What was measured before and is not after: nothing says that it did not get worse."""
    for table in tables:
        gone = [
            n for n, runs in table.some.items() if any(runs[:before]) and not any(runs[before:])
        ]
        part = [
            node
            for node, runs in table.some.items()
            if node not in gone and any(runs[:before]) and any(runs[before:])
        ]
        for nodes, why in ((gone, "not measured after"), (part, "not measured in every run")):
            for node in nodes:
                yield Finding(Outcome.CANNOT_TELL, table.check, table.name, node, why, table.unit)
