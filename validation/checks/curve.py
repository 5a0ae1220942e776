"""What the times of a collective say of each other: one size, one call or one rank that is slow.

A collective takes a latency and the time that its bytes need: t = latency + size / bandwidth. The
two are fitted to the medians of all sizes. Times are compared by their ratio, and noise only adds
to a time, so a size that is faster than the model counts FASTER times as much as one that is as
many times slower (a quantile regression: about one size in nine lies below). So most sizes may be
slow, and the fast ones still tell.

The ranks of a collective wait for each other, so its time does not tell who was late. A rank's own
work between two calls does: no other rank has a part in it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from validation.checks.together import named
from validation.model import Metric, Rank, Threshold
from validation.thresholds import Outlier, Outliers

FASTER = 8
FEWEST_FOR_SPREAD = 5  # ranks, of which a median absolute deviation says something
SPREADS = 5  # deviations
_SIGMA = 1.4826  # of a normal distribution, in its median absolute deviations


@dataclass(frozen=True, slots=True)
class Times:
    """The calls of one size: seconds on the slowest rank. `name` is for people."""

    name: str
    bytes: int
    calls_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.calls_s)


@dataclass(frozen=True, slots=True)
class Model:
    """t = latency_s + bytes * s_per_byte."""

    latency_s: float
    s_per_byte: float

    def seconds(self, size: int) -> float:
        return self.latency_s + size * self.s_per_byte


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is slower than it may be, in a sentence; and the figure that was judged."""

    sentence: str
    value: Metric
    threshold: Threshold


@dataclass(frozen=True, slots=True)
class SlowRanks:
    """Ranks whose own work takes longer than that of the others, and how many times as long."""

    ranks: tuple[Rank, ...]
    finding: Finding

    @property
    def host(self) -> str | None:
        """The node that they are all on; None if there are several."""
        hosts = {rank.host for rank in self.ranks}
        return hosts.pop() if len(hosts) == 1 else None


def fit(times: Sequence[Times]) -> Model:
    """The model of the least cost among all that go through two of the sizes, or through one with
    no latency or no time per byte; neither is negative. Sizes and times must be above zero.
    """
    points = [(item.bytes, item.median_s) for item in times]
    models = [Model(seconds, 0.0) for _, seconds in points]
    models += [Model(0.0, seconds / size) for size, seconds in points]
    for number, (size, seconds) in enumerate(points):
        for larger, longer in points[number + 1 :]:
            if larger != size and (slope := (longer - seconds) / (larger - size)) >= 0:
                latency = seconds - slope * size
                models += [Model(latency, slope)] if latency >= 0 else []
    return min(models, key=lambda model: sum(_cost(model, *point) for point in points))


def _cost(model: Model, size: int, seconds: float) -> float:
    apart = math.log(seconds / model.seconds(size))
    return apart if apart > 0 else -apart * FASTER


def outliers(times: Sequence[Times], limits: Outliers) -> list[Finding]:
    """The sizes of an operation that lie above its model, then the calls far above their median."""
    found = []
    if len(times) > 1:
        model = fit(times)
        found = [_slow_size(item, model, limits.size) for item in times]
    found += [_slow_call(item, limits.call) for item in times]
    return [finding for finding in found if finding is not None]


def _slow_size(times: Times, model: Model, limit: Outlier) -> Finding | None:
    expected = model.seconds(times.bytes)
    if not limit.exceeded(times.median_s, expected):
        return None
    factor = times.median_s / expected
    sentence = (
        f"{times.name} takes {duration(times.median_s)}, {factor:.3g} times what the other sizes "
        f"let expect ({duration(expected)}); at most {limit.threshold.value:g} times expected"
    )
    return Finding(sentence, _times(f"{times.name} against its model", factor), limit.threshold)


def _slow_call(times: Times, limit: Outlier) -> Finding | None:
    slowest = max(times.calls_s)
    if not limit.exceeded(slowest, times.median_s):
        return None
    slow = sum(limit.exceeded(seconds, times.median_s) for seconds in times.calls_s)
    factor = slowest / times.median_s
    sentence = (
        f"{slow} of {len(times.calls_s)} calls of {times.name} took {duration(slowest)}, "
        f"{factor:.3g} times the median ({duration(times.median_s)}); at most "
        f"{limit.threshold.value:g} times expected"
    )
    value = _times(f"{times.name}, slowest call against the median", factor)
    return Finding(sentence, value, limit.threshold)


def slow_ranks(
    work_s: Sequence[Sequence[float]], ranks: Sequence[Rank], limit: Outlier
) -> SlowRanks | None:
    """The ranks whose own work takes longer than the others' in most measurements.

    work_s: seconds of each rank, by its number, in each of several measurements. A rank is held
    against the median of all others, and from FEWEST_FOR_SPREAD ranks on must also lie SPREADS
    deviations above it.
    """
    ratios: dict[int, list[float]] = {}
    for measured in work_s:
        for number, ratio in _apart(measured, limit):
            ratios.setdefault(number, []).append(ratio)
    slow = {
        rank: statistics.median(ratios[rank.rank])
        for rank in ranks
        if len(ratios.get(rank.rank, ())) * 2 > len(work_s)
    }
    if not slow:
        return None
    factor = max(slow.values())
    need = "needs" if len(slow) == 1 else "need"
    sentence = (
        f"{named([*slow])} {need} {factor:.3g} times as long as the other "
        f"ranks for their own work between two calls; at most {limit.threshold.value:g} times "
        "expected"
    )
    value = _times("a rank's own work against the others'", factor)
    return SlowRanks(tuple(slow), Finding(sentence, value, limit.threshold))


def _apart(measured: Sequence[float], limit: Outlier) -> Iterator[tuple[int, float]]:
    """The ranks that stand out, and how many times the others' median each needs."""
    least = float(limit.threshold.value) * min(measured)
    for number, own in enumerate(measured):
        if own <= least or len(measured) == 1:  # below any median of the others, without a sort
            continue
        others = [*measured[:number], *measured[number + 1 :]]
        middle = statistics.median(others)
        spread = statistics.median(abs(seconds - middle) for seconds in others)
        enough = len(measured) >= FEWEST_FOR_SPREAD
        if enough and own <= middle + SPREADS * _SIGMA * spread:
            continue
        if limit.exceeded(own, middle):
            yield number, own / middle


def _times(name: str, factor: float) -> Metric:
    return Metric(name, float(f"{factor:.4g}"), "×")


def duration(seconds: float) -> str:
    """
    >>> duration(0.0021)
    '2.1 ms'
    """
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
