"""A burn-in on one page: its rounds, and the curves of each GPU over them."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.text import duration
from validation.burn_in.rounds import Round, first_failure
from validation.checks.soaked import Stretch
from validation.report import html

WIDTH, HEIGHT = 560, 90  # of a plot, in its own units
_MOST_POINTS = 600  # more than a screen shows


@dataclass(frozen=True, slots=True)
class Curve:
    """One figure of one GPU over time: points of a plot, and what it says in numbers."""

    what: str
    unit: str
    points: str
    least: float
    most: float
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Panel:
    """All curves of one GPU."""

    title: str
    curves: tuple[Curve, ...]


def render(rounds: Sequence[Round], title: str, notes: Sequence[str]) -> str:
    rows = [
        (
            item.number,
            item.began,
            duration(item.at_s),
            duration(item.seconds),
            duration(item.load_s),
            item.verdict,
            "; ".join(f"{r.check} {r.subject.name}: {r.message}" for r in item.open[:3]),
        )
        for item in rounds
    ]
    return html.page(
        "rounds.html.j2",
        title=title,
        notes=notes,
        first=first_failure(rounds),
        rows=rows,
        panels=list(panels(rounds)),
        width=WIDTH,
        height=HEIGHT,
    )


def panels(rounds: Iterable[Round]) -> Iterable[Panel]:
    """Of each GPU of each node, in the order of the last round."""
    by_gpu: dict[tuple[str, int], list[tuple[float, Stretch]]] = {}
    for item in rounds:
        for stretch in item.stretches:
            by_gpu.setdefault((stretch.host, stretch.index), []).append((item.at_s, stretch))
    for found in by_gpu.values():
        figures: dict[str, tuple[str, list[tuple[float, float | None]]]] = {
            "speed": ("products/s", [(at, _rate(stretch)) for at, stretch in found]),
            "temperature, highest": ("°C", [(at, stretch.highest_c) for at, stretch in found]),
            "clock, lowest": ("MHz", [(at, stretch.least_mhz) for at, stretch in found]),
            "power, median": ("W", [(at, stretch.power_w) for at, stretch in found]),
        }
        curves = [
            _curve(what, unit, [(at, value) for at, value in points if value is not None])
            for what, (unit, points) in figures.items()
            if any(value is not None for _, value in points)
        ]
        yield Panel(found[-1][1].what, tuple(curves))


def _rate(stretch: Stretch) -> float:
    return statistics.median(window.rate for window in stretch.windows)


def _curve(what: str, unit: str, points: Sequence[tuple[float, float]]) -> Curve:
    values = [value for _, value in points]
    least, most = min(values), max(values)
    begin, end = points[0][0], points[-1][0]
    # A figure that hardly changes is a flat line, and not its own noise.
    low, high = min(least, 0.9 * most), most or 1.0
    step = max(1, len(points) // _MOST_POINTS)
    shown = [
        f"{WIDTH * (at - begin) / ((end - begin) or 1.0):.1f},"
        f"{HEIGHT * (1 - (value - low) / ((high - low) or 1.0)):.1f}"
        for at, value in points[::step]
    ]
    if len(shown) == 1:
        shown.append(f"{WIDTH}.0,{shown[0].partition(',')[2]}")
    first, last = (float(f"{value:.4g}") for value in (values[0], values[-1]))
    return Curve(
        what, unit, " ".join(shown), float(f"{least:.4g}"), float(f"{most:.4g}"), first, last
    )
