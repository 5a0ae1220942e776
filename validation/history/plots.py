"""A figure over time: a line of blocks or dots for a terminal, and a picture for a page."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.-=*#%@"  # the same for a terminal that has no blocks
_HEIGHT = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """One value: when it was measured (seconds since 1970), and of which run."""

    when: float
    value: float
    label: str
    bad: bool = False


def sparkline(values: Sequence[float], width: int, blocks: str = BLOCKS) -> str:
    """The values as characters, at most `width`: where there are more, each is a mean of several.

    >>> sparkline([1, 2, 3, 8], 10)
    '▁▂▃█'
    """
    values = _fewer(values, width)
    low, span = min(values), max(values) - min(values)
    if span <= abs(low) * 1e-9:
        return blocks[len(blocks) // 2] * len(values)
    top = len(blocks) - 1
    return "".join(blocks[round((value - low) / span * top)] for value in values)


def chart(samples: Sequence[Sample], width: int, limit: float | None = None) -> list[str]:
    """Values in their order, in ASCII: `*` a value, `x` one of a failure, `-` the limit."""
    texts = [f"{value:.4g}" for value in _bounds(samples, limit)]
    left = max(map(len, texts)) + 1
    room = max(width - left - 2, 10)
    shown = _last(samples, room)
    low, high = _bounds(shown, limit)
    step = max(room // len(shown), 1)
    rows = [[" "] * min(room, step * len(shown)) for _ in range(_HEIGHT)]

    def row(value: float) -> int:
        part = (value - low) / (high - low)
        return _HEIGHT - 1 - round(part * (_HEIGHT - 1))

    if limit is not None:
        line = row(limit)
        rows[line] = ["-"] * len(rows[line])
    for number, sample in enumerate(shown):
        rows[row(sample.value)][number * step] = "x" if sample.bad else "*"
    marks = {0: f"{high:.4g}", _HEIGHT - 1: f"{low:.4g}"}
    return [
        f"{marks.get(number, ''):>{left}} |{''.join(cells).rstrip()}"
        for number, cells in enumerate(rows)
    ]


def _bounds(samples: Sequence[Sample], limit: float | None) -> tuple[float, float]:
    values = [sample.value for sample in samples] + ([] if limit is None else [limit])
    low, high = min(values), max(values)
    if high - low <= abs(high) * 1e-9:
        margin = abs(high) * 0.1 or 1.0
        return low - margin, high + margin
    return low, high


def _last(samples: Sequence[Sample], most: int) -> Sequence[Sample]:
    return samples[-most:]


def _fewer(values: Sequence[float], most: int) -> list[float]:
    if len(values) <= most:
        return list(values)
    parts = [
        values[index * len(values) // most : (index + 1) * len(values) // most]
        for index in range(most)
    ]
    return [math.fsum(part) / len(part) for part in parts]


# --- a picture ---------------------------------------------------------------------------------

_WIDTH, _TALL, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 220, 70, 30, 14, 14


def svg(samples: Sequence[Sample], unit: str, limit: float | None = None) -> str:
    """The values over time as SVG, in the colours of the page that it stands in."""
    low, high = _bounds(samples, limit)
    begin, end = samples[0].when, samples[-1].when
    span = end - begin or 1.0

    def x(sample: Sample) -> float:
        room = _WIDTH - _LEFT - _RIGHT
        part = (sample.when - begin) / span if len(samples) > 1 else 0.5
        return round(_LEFT + room * part, 1)

    def y(value: float) -> float:
        return round(_TOP + (high - value) / (high - low) * (_TALL - _TOP - _BOTTOM), 1)

    words = ", ".join(f"{sample.label}: {sample.value:.4g} {unit}".strip() for sample in samples)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_TALL}" role="img" aria-label="{html.escape(words)}">']
    for value in (low, (low + high) / 2, high):
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value)}" '
            f'y2="{y(value)}"/><text class="end" x="{_LEFT - 6}" y="{y(value) + 4}">'
            f"{value:.4g}</text>"
        )
    if limit is not None:
        parts.append(
            f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(limit)}" '
            f'y2="{y(limit)}"/>'
        )
    line = " ".join(f"{x(sample)},{y(sample.value)}" for sample in samples)
    parts.append(f'<polyline points="{line}"/>')
    for sample in samples:
        kind = ' class="fail"' if sample.bad else ""
        title = html.escape(f"{sample.label}: {sample.value:.4g} {unit}".strip())
        parts.append(
            f'<circle{kind} cx="{x(sample)}" cy="{y(sample.value)}" r="4"><title>{title}</title>'
            "</circle>"
        )
    parts.append("</svg>")
    return "".join(parts)
