"""What a panel shows, worked out of Prometheus' answers: as Grafana would, and nothing of HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.grafana.page import units
from roles.grafana.page.boards import Panel, Target
from validation.prometheus import Series

Answers = Mapping[str, Sequence[Series]]  # by the letters of a panel's queries


@dataclass(frozen=True)
class Value:
    """One number: as text, with the colour of its level, and its place between least and most."""

    name: str
    text: str
    colour: str
    share: float


@dataclass(frozen=True)
class Line:
    """A series of a graph; `values` has None where there is none."""

    name: str
    last: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Graph:
    """Axis values are divided by `divisor` and followed by `suffix`."""

    times: tuple[float, ...]
    lines: tuple[Line, ...]
    divisor: float
    suffix: str
    stacked: bool
    top: float | None


@dataclass(frozen=True)
class Table:
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Stretch:
    """Of a band: from and how long, as shares of the whole time."""

    start: float
    length: float
    text: str
    colour: str


@dataclass(frozen=True)
class Bands:
    rows: tuple[tuple[str, tuple[Stretch, ...]], ...]
    key: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Values:
    each: tuple[Value, ...]


@dataclass(frozen=True)
class Nothing:
    """Why nothing is shown."""

    why: str
    expected: bool


Content = Values | Graph | Table | Bands | Nothing


@dataclass(frozen=True)
class Span:
    """Seconds since 1970, and the step of graphs."""

    start: float
    end: float
    step: float = field(default=15)


def of(panel: Panel, answers: Answers, span: Span) -> Content:
    if panel.kind == "timeseries":
        return _graph(panel, answers, span)
    if panel.kind == "state-timeline":
        return _bands(panel, answers, span)
    if panel.kind == "table":
        return _table(panel, answers)
    return _values(panel, answers)


# --- names, colours ------------------------------------------------------------------------------


def named(target: Target, labels: Mapping[str, str]) -> str:
    """As the legend has it; without one, or where it says nothing, all labels."""
    text = re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), target.legend).strip()
    return text or ", ".join(
        f"{name}={value}" for name, value in sorted(labels.items()) if name != "__name__"
    )


def _each(panel: Panel, answers: Answers) -> list[tuple[str, Series]]:
    """Query by query, of each the series by name."""
    found = []
    for target in panel.targets:
        series = [(named(target, one.labels), one) for one in answers.get(target.ref, ())]
        found += sorted(series, key=lambda pair: natural(pair[0]))
    return found


def natural(text: str) -> list[tuple[int, str]]:
    """
    >>> sorted(["gpu10", "gpu9"], key=natural)
    ['gpu9', 'gpu10']
    """
    parts = re.findall(r"\d+|\D+", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _colour(panel: Panel, value: float) -> str:
    found = "text"
    for step in panel.defaults.get("thresholds", {}).get("steps", ()):
        if step["value"] is None or value >= step["value"]:
            found = step["color"]
    return str(found)


# --- one kind after the other --------------------------------------------------------------------


def _values(panel: Panel, answers: Answers) -> Values:
    unit = panel.defaults["unit"]
    found = _each(panel, answers)
    least = panel.defaults.get("min", 0)
    most = panel.defaults.get("max", max((one.last for _, one in found), default=1)) or 1
    return Values(
        tuple(
            Value(
                name,
                units.written(one.last, unit),
                _colour(panel, one.last),
                min(1.0, max(0.0, (one.last - least) / ((most - least) or 1))),
            )
            for name, one in found
        )
    )


def _graph(panel: Panel, answers: Answers, span: Span) -> Graph:
    unit = panel.defaults["unit"]
    found = _each(panel, answers)
    times = _times(span)
    largest = max((abs(value) for _, one in found for _, value in one.points), default=0)
    divisor, suffix = units.scale(unit, largest)
    custom = panel.defaults.get("custom", {})
    return Graph(
        times,
        tuple(
            Line(name, units.written(one.last, unit), _on(times, one, span.step))
            for name, one in found
        ),
        divisor,
        suffix,
        custom.get("stacking", {}).get("mode") == "normal",
        panel.defaults.get("max"),
    )


def _times(span: Span) -> tuple[float, ...]:
    count = int((span.end - span.start) // span.step)
    return tuple(span.start + number * span.step for number in range(count + 1))


def _on(times: Sequence[float], series: Series, step: float) -> tuple[float | None, ...]:
    """Prometheus answers for these very times; milliseconds may be lost."""
    places = {round((time - times[0]) / step): value for time, value in series.points}
    return tuple(places.get(number) for number in range(len(times)))


def _bands(panel: Panel, answers: Answers, span: Span) -> Bands:
    (mapping,) = (one["options"] for one in panel.defaults["mappings"])
    rows = tuple(
        (name, tuple(_stretches(one, span, mapping))) for name, one in _each(panel, answers)
    )
    key = sorted(mapping.values(), key=lambda one: one["index"])
    return Bands(rows, tuple((one["text"], one["color"]) for one in key))


def _stretches(
    series: Series, span: Span, mapping: Mapping[str, Mapping[str, str]]
) -> Iterable[Stretch]:
    """Values that follow each other and are the same are one; a value lasts for a step."""
    length = span.end - span.start
    begin, until, value = series.points[0][0], series.points[0][0], series.points[0][1]

    def stretch() -> Stretch:
        meant = mapping.get(f"{value:g}", {"text": f"{value:g}", "color": "text"})
        end = min(until + span.step, span.end)
        start = (begin - span.start) / length
        return Stretch(start, (end - begin) / length, meant["text"], meant["color"])

    for time, next_value in series.points[1:]:
        if next_value != value or time - until > 1.5 * span.step:
            yield stretch()
            begin, value = time, next_value
        until = time
    if until > begin or span.end > begin:
        yield stretch()


def _table(panel: Panel, answers: Answers) -> Table:
    """Rows meet on the labels that all queries with an answer have: Grafana's `merge`."""
    organised: Mapping[str, Any] = next(
        one["options"] for one in panel.settings["transformations"] if one["id"] == "organize"
    )
    several = len(panel.targets) > 1
    answered = {ref: found for ref, found in answers.items() if found}
    common = set.intersection(
        *({name for one in found for name in one.labels} for found in answered.values())
    )
    merged: dict[tuple[tuple[str, str], ...], dict[str, str | float]] = {}
    for ref, found in answered.items():
        column = f"Value #{ref}" if several else "Value"
        for one in found:
            key = tuple((name, one.labels.get(name, "")) for name in sorted(common))
            merged.setdefault(key, {}).update({**one.labels, column: one.last})
    columns = sorted(
        (name for name in organised["renameByName"]),
        key=lambda name: organised["indexByName"][name],
    )
    titles = tuple(organised["renameByName"][name] for name in columns)
    unit_of = {
        override["matcher"]["options"]: override["properties"][0]["value"]
        for override in panel.settings["fieldConfig"]["overrides"]
    }

    def cell(row: Mapping[str, str | float], name: str, title: str) -> str:
        value = row.get(name, "")
        return value if isinstance(value, str) else units.written(value, unit_of[title])

    rows = [
        tuple(cell(row, name, title) for name, title in zip(columns, titles, strict=True))
        for row in merged.values()
    ]
    return Table(titles, tuple(sorted(rows, key=lambda row: [natural(text) for text in row])))
