"""What the simulated localisations came to: a table in Markdown, and a plot as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from html import escape

from validation.tests.localisation import ALGORITHMS, OURS, Algorithm, Score, cluster, score

CHUNK = 20  # seeds that a process does at once


@dataclass(frozen=True)
class Row:
    """An algorithm on clusters of one size. Without scores only its cost is known, by formula."""

    name: str
    size: int
    rounds: float
    most_rounds: int
    tests: float
    scores: tuple[Score, ...] = ()

    def of(self, *, switch: bool) -> list[Score]:
        """Runs in which a switch is lost, or none is."""
        return [one for one in self.scores if one.switch is switch]


def rows(sizes: Sequence[int], seeds: range, others: range, processes: int = 1) -> Iterator[Row]:
    """Ours with `seeds`, the other algorithms with the seeds of `others`."""
    with ProcessPoolExecutor(processes) as pool:
        for algorithm in ALGORITHMS:
            for size in sizes:
                if algorithm.cost and algorithm.most is not None and size > algorithm.most:
                    rounds, tests = algorithm.cost(size)
                    yield Row(algorithm.name, size, rounds, rounds, tests)
                    continue
                wanted = seeds if algorithm is OURS else others
                parts = [wanted[first : first + CHUNK] for first in range(0, len(wanted), CHUNK)]
                jobs = [pool.submit(scored, algorithm.name, size, part) for part in parts]
                yield row(algorithm, size, [one for job in jobs for one in job.result()])


def scored(name: str, size: int, seeds: range) -> list[Score]:
    algorithm = next(one for one in ALGORITHMS if one.name == name)
    return [score(algorithm, cluster(size), seed) for seed in seeds]


def row(algorithm: Algorithm, size: int, scores: Sequence[Score]) -> Row:
    count = len(scores)
    return Row(
        algorithm.name,
        size,
        sum(one.rounds for one in scores) / count,
        max(one.rounds for one in scores),
        sum(one.tests for one in scores) / count,
        tuple(scores),
    )


# --- the table -----------------------------------------------------------------------------------

HEAD = (
    "| Algorithm | Nodes | Runs | Rounds, mean | most | Tests, mean | Found | Missed, a run "
    "| Accused, a run | Found, a switch lost | Accused, a run |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def table(found: Iterable[Row]) -> str:
    return "\n".join((HEAD, *map(line, found)))


def line(row: Row) -> str:
    cells = [row.name, f"{row.size:,}", f"{len(row.scores):,}" if row.scores else "by formula"]
    cells += [_short(row.rounds), f"{row.most_rounds:,}", _short(row.tests)]
    for switch in (False, True):
        scores = row.of(switch=switch)
        there, got = sum(one.there for one in scores), sum(one.found for one in scores)
        if not scores:
            cells += ["–"] * (2 + (not switch))
            continue
        cells.append(share(got, there))
        cells += [] if switch else [_short((there - got) / len(scores))]
        cells.append(_short(sum(one.accused for one in scores) / len(scores)))
    return f"| {' | '.join(cells)} |"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.2g}"


def share(part: int, whole: int) -> str:
    """Never 100 % of what is not all; of nothing there is no share."""
    if not whole:
        return "–"
    if part == whole:
        return "100 %"
    return f"{math.floor(1000 * part / whole) / 10:.1f} %"


# --- the plot ------------------------------------------------------------------------------------

COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#999999", "#d55e00", "#56b4e9", "#8c564b",
)  # fmt: skip
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 460, 70, 110, 30, 55


def plot(found: Sequence[Row]) -> str:
    """Rounds by number of nodes, both on a logarithmic scale."""
    sizes = sorted({row.size for row in found})
    decades = math.ceil(math.log10(max(row.rounds for row in found)))
    low, high = math.log2(sizes[0]), math.log2(sizes[-1])

    def across(size: int) -> float:
        share = (math.log2(size) - low) / (high - low) if high > low else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def up(rounds: float) -> float:
        return HEIGHT - BOTTOM - math.log10(max(rounds, 1)) / decades * (HEIGHT - TOP - BOTTOM)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(decades + 1):
        y = up(10**power)
        lines += [
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>',
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>',
        ]
    for size in sizes:
        x = across(size)
        lines.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{size:,}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    lines += [
        f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">nodes</text>',
        f'<text x="{LEFT}" y="18">rounds, one after another</text>',
    ]
    names = list(dict.fromkeys(row.name for row in found))
    ends = _spread([up([row for row in found if row.name == name][-1].rounds) for name in names])
    for name, colour, end in zip(names, COLOURS, ends, strict=False):
        points = [
            f"{across(row.size):.1f} {up(row.rounds):.1f}" for row in found if row.name == name
        ]
        lines += [
            f'<path d="M{" L".join(points)}" fill="none" stroke="{colour}" '
            f'stroke-width="{3 if name == OURS.name else 1.5}"/>',
            f'<text x="{WIDTH - RIGHT + 8}" y="{end + 4:.1f}" fill="{colour}">'
            f"{escape(name)}</text>",
        ]
    return "\n".join((*lines, "</svg>")) + "\n"


def _spread(places: Sequence[float], apart: float = 15) -> list[float]:
    """Places of labels, moved up where they would lie on each other."""
    moved = list(places)
    last = math.inf
    for number in sorted(range(len(places)), key=lambda number: -places[number]):
        last = moved[number] = min(places[number], last - apart)
    return moved
