"""What the checks of the payload `host_speed` share: its answer, and how speeds are held.

That data came back right is judged everywhere. A speed is judged where the site, or a file of the
model, says what it must be; elsewhere it is measured and reported, held against a floor that any
machine reaches, and the result says what it was held against: the data alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster.text import printable
from validation.checks.document import Document, Fields, Unusable
from validation.model import Job, Metric, Result, Threshold, Tier, Verdict, worst
from validation.thresholds import Rules

PAYLOAD = "host_speed"
GBS = "GB/s"
_RIGHT = Threshold("=", 0, "bytes", "defined", "what is written comes back as it was")
_SHORTEST_S = 1e-9  # what a clock can tell apart


def part(document: Document, name: str) -> Fields:
    """What was found of `disk` or `memory`. Raises Unusable where it could not be tried."""
    if not document.measured.has(name):
        raise Unusable(f"the answer has no {name}")
    answer = document.measured.inner(name)
    if (error := answer.maybe_text("error")) is not None:
        raise Unusable(printable(error, 200))
    return answer.inner("found")


def speed(what: str, size: int, seconds: float) -> Metric:
    """Bytes in seconds as a metric. Raises Unusable for a time in which nothing can happen."""
    if seconds < _SHORTEST_S:
        raise Unusable(f"{what}: {size} bytes in {seconds:g} s")
    return Metric(what, float(f"{size / seconds / 1e9:.4g}"), GBS)


def concluded(
    check: str,
    job: Job,
    document: Document,
    rules: Rules,
    wrong: int,
    speeds: Sequence[Metric],
    metrics: Sequence[Metric] = (),
    unjudged: str = "",
    floors: Mapping[str, Threshold] | None = None,
) -> Result:
    """The data judged, then each speed that a threshold is there for, by its name.

    `floors` are what any machine reaches: a speed below is told, and is shown only then. Nothing is
    too slow for a cache and fast enough for a disk, so they hold for both.
    `unjudged` says why the speeds are those of a cache: one that should be judged is inconclusive
    then, and none goes by its own name, so that nobody compares them.
    """
    value, threshold, message = Metric("wrong", wrong, "bytes"), _RIGHT, ""
    verdict = _RIGHT.judge(wrong)
    if verdict is Verdict.FAIL:
        message = f"{wrong} bytes came back as others than were written"
    held = rules.model.host if rules.model else {}
    judged = [(metric, held[metric.name]) for metric in speeds if metric.name in held]
    if verdict is Verdict.PASS and judged:
        verdicts = [limit.judge(metric.value) for metric, limit in judged]
        verdict = worst(verdicts)
        value, threshold = judged[verdicts.index(verdict)]
        if unjudged:
            verdict, message = Verdict.INCONCLUSIVE, unjudged
        elif verdict is not Verdict.PASS:
            message = f"{value.name} {value.value} {GBS}, {threshold.value} are needed"
    if verdict is not Verdict.FAIL and floors:
        low = [(floors[metric.name].judge(metric.value), metric) for metric in speeds]
        lowest = worst(own for own, _ in low)
        if lowest in (Verdict.FAIL, Verdict.WARN) and worst([verdict, lowest]) is not verdict:
            verdict = lowest
            value = next(metric for own, metric in low if own is lowest)
            threshold = floors[value.name]
            least = threshold.value if verdict is Verdict.FAIL else threshold.warn
            message = f"{value.name} {value.value} {GBS}, any machine does {least}"
    if unjudged:
        speeds = [replace(metric, name=f"{metric.name}, cached") for metric in speeds]
    shown = tuple(metric for metric in (*speeds, *metrics) if metric != value)
    return Result(
        check, Tier.NODE, job.subject, verdict, message, value, threshold, shown, document.proof
    )
