"""The figures of a scaling check as one table, and as the lines of a plot.

They are the metrics of its result (checks/scaling.py), so that every report shows the same.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.hostlist import compress
from validation.model import Metric, Result, Verdict
from validation.report import words

_NAME = re.compile(r"(.+), (\d+) ranks? on (\d+) nodes?")
_SIZE = ("ranks", "nodes")
# The names of the check's metrics (checks/scaling.py), before the size that each is of.
CHECK = "scaling"
LINES = (
    "weak efficiency",
    "strong efficiency",
    "pipeline efficiency",
    "pipeline efficiency, ideal",
)
COLUMNS = ("tokens per second", *LINES, "MFU")


@dataclass(frozen=True, slots=True)
class Table:
    """One group of nodes: a row for each size, and each line's value at each size."""

    title: str
    verdict: Verdict
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sizes: tuple[int, ...]
    lines: tuple[tuple[str, tuple[float | None, ...]], ...]


def tables(results: Sequence[Result]) -> Iterator[Table]:
    """Of each result that has more than one size."""
    for result in results:
        if result.check != CHECK:
            continue
        found: dict[tuple[int, int], dict[str, Metric]] = {}
        for metric in result.metrics:
            if match := _NAME.fullmatch(metric.name):
                size = int(match[2]), int(match[3])
                found.setdefault(size, {})[match[1]] = metric
        if len(found) > 1:
            yield _table(result, found)


def _table(result: Result, found: dict[tuple[int, int], dict[str, Metric]]) -> Table:
    columns = [name for name in COLUMNS if any(name in row for row in found.values())]
    return Table(
        f"{result.check} on {compress(result.subject.nodes)}",
        result.verdict,
        (*_SIZE, *columns),
        tuple(
            (str(ranks), str(nodes), *(_cell(row.get(name)) for name in columns))
            for (ranks, nodes), row in found.items()
        ),
        tuple(ranks for ranks, _ in found),
        tuple(
            (name, tuple(_value(row.get(name)) for row in found.values()))
            for name in LINES
            if name in columns
        ),
    )


def _cell(metric: Metric | None) -> str:
    return "–" if metric is None else words.number(metric.value)


def _value(metric: Metric | None) -> float | None:
    return None if metric is None or isinstance(metric.value, str) else float(metric.value)
