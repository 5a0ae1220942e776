"""What chance alone does to figures. Standard library only.

All tests are one-sided: whether the values after are larger than those before. Values are
logarithms, so that a difference is a ratio.
"""

import itertools
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Relabellings of runs, or of nodes, that are looked at: all where they are fewer. The sample is
# drawn from a fixed seed: a comparison that is repeated says the same.
MOST = 1000
_SEED = 20260101


def cliffs_delta(before: Sequence[float], after: Sequence[float]) -> float:
    """How far two samples lie apart: 1 where every value after is larger, -1 where none is.

    >>> cliffs_delta([1, 2], [3, 4]), cliffs_delta([1, 3], [1, 3])
    (1.0, 0.0)
    """
    larger = sum((b > a) - (b < a) for a in before for b in after)
    return larger / (len(before) * len(after))


def relabellings(before: int, after: int) -> int:
    """In how many ways runs could be called before and after."""
    return math.comb(before + after, after)


@dataclass(frozen=True, slots=True)
class Test:
    """One question: whether a figure is larger after.

    values  of the runs, those before first; floor: added to its spread, so that a figure that
            hardly varies is no finding at its smallest move
    """

    values: tuple[float, ...]
    floor: float


def familywise(tests: Sequence[Test], before: int) -> list[float]:
    """p of each test, corrected for all of them: that chance alone makes any as large.

    Westfall and Young's correction by the largest statistic ("max T", 1993): runs are called
    before and after in every way, and a test counts by how often the largest statistic of any test
    is as large as its own. It holds for few runs, and for figures that move together.
    """
    if not tests:
        return []
    size = len(tests[0].values)
    prepared = [
        (test.values, math.fsum(test.values), math.fsum(v * v for v in test.values), test.floor)
        for test in tests
    ]
    observed = [0.0] * len(tests)
    largest = []
    for number, chosen in enumerate(_chosen(size, size - before)):
        top = -math.inf
        for index, (values, total, squares, floor) in enumerate(prepared):
            inside = 0.0
            for run in chosen:
                inside += values[run]
            outside = total - inside
            after = size - before
            within = squares - inside * inside / after - outside * outside / before
            spread = math.sqrt(max(within, 0.0) / (size - 2)) + floor
            statistic = (inside / after - outside / before) / spread
            if number == 0:
                observed[index] = statistic
            top = max(top, statistic)
        largest.append(top)
    return _shares(observed, largest)


def _chosen(size: int, after: int) -> Iterator[tuple[int, ...]]:
    """Which runs are called after: as they are first, then every other way, or a sample."""
    real = tuple(range(size - after, size))
    yield real
    if math.comb(size, after) <= MOST:
        yield from (way for way in itertools.combinations(range(size), after) if way != real)
        return
    draw = random.Random(_SEED)
    for _ in range(MOST - 1):
        yield tuple(draw.sample(range(size), after))


def sign_flips(differences: Sequence[Sequence[float]], floor: float) -> list[float]:
    """p of each row, corrected for all of them, that its differences are larger than 0.

    Each row is a figure, each column a node; a node's differences change their sign together, in
    every way or in a sample.
    """
    if not differences:
        return []
    size = len(differences[0])
    squares = [math.fsum(value * value for value in row) for row in differences]
    observed = [0.0] * len(differences)
    largest = []
    for number, signs in enumerate(_signs(size)):
        top = -math.inf
        for index, row in enumerate(differences):
            total = math.fsum(value * sign for value, sign in zip(row, signs, strict=True))
            within = max(squares[index] - total * total / size, 0.0)
            spread = math.sqrt(within / (size - 1) / size) + floor
            statistic = total / size / spread
            if number == 0:
                observed[index] = statistic
            top = max(top, statistic)
        largest.append(top)
    return _shares(observed, largest)


def _signs(size: int) -> Iterator[tuple[int, ...]]:
    real = (1,) * size
    yield real
    if 2**size <= MOST:
        yield from (way for way in itertools.product((1, -1), repeat=size) if way != real)
        return
    draw = random.Random(_SEED)
    for _ in range(MOST - 1):
        yield tuple(draw.choice((1, -1)) for _ in range(size))


def _shares(observed: Sequence[float], largest: Sequence[float]) -> list[float]:
    # A sum in another order differs in its last bits.
    return [sum(top >= own - 1e-9 for top in largest) / len(largest) for own in observed]


def spread(values: Sequence[float]) -> float:
    """The median distance from the median, as a standard deviation of normal noise."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)
