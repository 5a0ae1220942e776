"""What each part of scripts/test may cost, and whether it kept to that.

A cost is CPU time, not time on the clock, which says what else the machine did. It is told in
yardsticks: the CPU time of an empty playbook, measured in the same run, so that a record holds on a
faster machine too, and on a busy one. Where the yardsticks differ too much, they measure the
machine, and a cost above its record is only told. tests/budget.tsv has the record of each part, of
what it used here (`control`) and on its nodes (`nodes`), and the counts that its tests noted
(tests/runner/counts.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from tests.runner.counts import ANY_PART, Count
from tests.runner.results import Result
from tests.runner.yardstick import Yardstick

RECORDS = Path("tests/budget.tsv")

FAILS = 2.0
TOLD = 1.3
# What a small part may have above its record whatever that is: two processes of Python more.
SLACK = 2.0
NEAR = 60.0  # seconds before a part and after it, of which yardsticks count
# How much longer than the shortest of the run a yardstick of a part's time may be. One short
# playbook does not tell what a busy machine takes from minutes of work: with yardsticks of 0.6 to
# 7.0 s in one run, parts cost up to 2.8 times their records (datasets, 2026-11-27).
STEADY = 2.0

CONTROL = "control"
NODES = "nodes"
COSTS = frozenset({CONTROL, NODES})

HEADER = """\
# What the parts of scripts/test may cost; how a line is raised: docs/contribute/testing.md.
# Costs (control, nodes, and names that end in _cpu) are in CPU time of an empty playbook.
"""


class Key(NamedTuple):
    part: str
    measure: str

    @property
    def is_cost(self) -> bool:
        return self.measure in COSTS or self.measure.endswith("_cpu")


class Verdict(Enum):
    KEPT = "kept"
    TOLD = "told"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One number of a run beside its record."""

    key: Key
    value: float | None
    record: float | None
    steady: bool = True  # whether the yardsticks of its time agree

    @property
    def ratio(self) -> float | None:
        if self.value is None or not self.record:
            return None
        return self.value / self.record

    @property
    def verdict(self) -> Verdict:
        if self.value is None or self.record is None:
            return Verdict.FAILED
        if not self.key.is_cost:
            return _of_count(self.value, self.record)
        if self.value > FAILS * self.record + SLACK and self.steady:
            return Verdict.FAILED
        return Verdict.TOLD if self.value > TOLD * self.record + SLACK else Verdict.KEPT

    def sentence(self) -> str:
        part, measure = self.key
        of_part = measure if part == ANY_PART else f"{part}: {measure}"
        if self.value is None:
            return f"{of_part} has a record of {self.record:g}, and was not measured"
        unit = " yardsticks" if self.key.is_cost else ""
        value = f"{of_part} is {self.value:.4g}{unit}"
        if self.record is None:
            return f"{value}, and {RECORDS} has no line for it"
        busy = "" if self.steady or not self.key.is_cost else " (on a machine that was too busy)"
        return f"{value}, the record is {self.record:g}{busy}"


def _of_count(value: float, record: float) -> Verdict:
    if value > record:
        return Verdict.FAILED
    return Verdict.TOLD if value < record else Verdict.KEPT


def read(path: Path = RECORDS) -> dict[Key, float]:
    """The records; a file that is not there has none."""
    records: dict[Key, float] = {}
    if not path.exists():
        return records
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            part, measure, record = line.split("\t")
            records[Key(part, measure)] = float(record)
    return records


def write(records: Mapping[Key, float], path: Path = RECORDS) -> None:
    lines = [
        f"{part}\t{measure}\t{value:g}\n" for (part, measure), value in sorted(records.items())
    ]
    path.write_text(HEADER + "".join(lines), encoding="utf-8")


def _near(noted: Sequence[Yardstick], begin: float, end: float) -> list[float]:
    """Those of this time, or all."""
    near = [sample.seconds for sample in noted if begin - NEAR <= sample.at <= end + NEAR]
    return near or [sample.seconds for sample in noted]


def middle(noted: Sequence[Yardstick], begin: float, end: float) -> float:
    """The middle of those of this time, or of all: one that met a busy moment counts no more."""
    return statistics.median(_near(noted, begin, end))


def busy(results: Iterable[Result], yardsticks: Sequence[Yardstick]) -> frozenset[str]:
    """The parts in whose time the machine was too busy to measure what they cost."""
    quiet = min(sample.seconds for sample in yardsticks)
    parts = {
        result.part
        for result in results
        if max(_near(yardsticks, result.ended - result.seconds, result.ended)) > STEADY * quiet
    }
    anywhere = {ANY_PART} if max(sample.seconds for sample in yardsticks) > STEADY * quiet else ()
    return frozenset(parts).union(anywhere)


def measured(
    results: Iterable[Result], counts: Iterable[Count], yardsticks: Sequence[Yardstick]
) -> dict[Key, float]:
    """What the parts that passed cost: what a part costs that failed says nothing."""
    costs: dict[Key, float] = {}
    everything = middle(yardsticks, float("-inf"), float("inf"))
    for result in results:
        if result.passed:
            yardstick = middle(yardsticks, result.ended - result.seconds, result.ended)
            costs[Key(result.part, CONTROL)] = round(result.control / yardstick, 1)
            if result.nodes is not None:
                costs[Key(result.part, NODES)] = round(result.nodes / yardstick, 1)
    for count in counts:
        value = round(count.value / everything, 2) if count.is_cpu else count.value
        costs[Key(count.part, count.name)] = value
    return costs


def judge(
    numbers: Mapping[Key, float],
    records: Mapping[Key, float],
    passed: frozenset[str],
    whole: bool = False,
    busy: frozenset[str] = frozenset(),
) -> list[Judgement]:
    """Every number that there is or should be: all records of the parts that passed.

    What no part is named for can be missed only in a whole run, in which every part had its turn.
    """
    ran = passed | {ANY_PART} if whole else passed
    expected = {key for key in records if key.part in ran}
    return [
        Judgement(key, numbers.get(key), records.get(key), key.part not in busy)
        for key in sorted(expected | {*numbers})
    ]


def renewed(
    numbers: Mapping[Key, float],
    records: Mapping[Key, float],
    passed: frozenset[str],
    whole: bool = False,
) -> dict[Key, float]:
    """The records with what was found; what has no part any more goes when all parts passed."""
    kept = {} if whole else {key: value for key, value in records.items() if key.part not in passed}
    return kept | dict(numbers)
