"""A GPU is as fast at the end of a burn-in as it was at its beginning.

What it checks   The median speed under load in the last hour is compared with that in the first
                 hour, or the last quarter with the first where the load was shorter than four
                 hours. A GPU that lost more than 2 % is a warning, more than 5 % a failure. Within
                 the first hour boards still warm up: twice as much is allowed there. CPUs that work
                 in the place of GPUs share their host with others: a failure only below a tenth.
Why it matters   A board that warms up slowly, dries out its thermal paste or loses a fan is fast in
                 every short test.
What to do       Slower at the end: compare temperature, clock and power of the first and the last
                 hour in rounds.html, then check cooling and the power supply. Too short: no node is
                 at fault; give the burn-in more time.
                 $ ssh {node} 'nvidia-smi -q -d TEMPERATURE,PERFORMANCE,POWER,CLOCK'
"""

import statistics
from collections.abc import Sequence

from cluster.text import printable
from validation.checks import soaked
from validation.checks.soaked import NodeOverTime, Window
from validation.model import Metric, Result, Threshold, Tier, Verdict, When, worst

NAME = "drift"
TIER = Tier.NODE
PAYLOAD = soaked.PAYLOAD

CAUSES = {
    "Slower at the end": When(r"at the beginning"),
    "Too short": When(r"too short"),
}

_HOUR_NS = 3600 * 10**9
FEWEST_WINDOWS = 4  # of a quarter's median nothing is known below that many in all

_SOURCE = "a healthy GPU under steady load keeps its speed within 1 % once it is warm"
_CPU_SOURCE = "CPUs share their host with others; only what is broken loses nine tenths"


def judge(nodes: Sequence[NodeOverTime]) -> list[Result]:
    return [_result(node) for node in nodes]


compare = soaked.comparing(NAME, judge)
over_time = judge


def _result(node: NodeOverTime) -> Result:
    judged: list[tuple[Verdict, Metric, Threshold, str]] = []
    for stretches in node.by_gpu.values():
        title = stretches[0].title
        windows = [window for stretch in stretches for window in stretch.windows]
        if len(windows) < FEWEST_WINDOWS:
            continue
        first, last = parts(windows)
        before, now = (statistics.median(window.rate for window in part) for part in (first, last))
        lasted_ns = last[-1].at_ns - first[0].at_ns
        limit = threshold(before, real=stretches[0].real, short=lasted_ns < _HOUR_NS)
        value = Metric(f"{title} at the end", float(f"{now:.4g}"), "products/s")
        text = f"{title} does {now:.4g} products/s, at the beginning {before:.4g}"
        judged.append((limit.judge(now), value, limit, text))
    if not judged:
        message = f"too short: fewer than {FEWEST_WINDOWS} windows of load"
        what = (NAME, TIER, node.job.subject)
        return Result(*what, Verdict.INCONCLUSIVE, message, proof=node.proof)
    verdict = worst(item[0] for item in judged)
    _, value, limit, _ = min(judged, key=lambda item: float(item[1].value) / float(item[2].value))
    texts = [text for own, _, _, text in judged if own is verdict and verdict is not Verdict.PASS]
    return Result(
        NAME,
        TIER,
        node.job.subject,
        verdict,
        printable("; ".join(texts), 300),
        value,
        limit,
        tuple(item[1] for item in judged),
        node.proof,
    )


def parts(windows: Sequence[Window]) -> tuple[Sequence[Window], Sequence[Window]]:
    """The first and the last hour, or the first and the last quarter of a shorter load."""
    ordered = sorted(windows, key=lambda window: window.at_ns)
    begin, end = ordered[0].at_ns, ordered[-1].at_ns
    if end - begin >= 4 * _HOUR_NS:
        first = [window for window in ordered if window.at_ns < begin + _HOUR_NS]
        last = [window for window in ordered if window.at_ns > end - _HOUR_NS]
        return first, last
    quarter = max(1, len(ordered) // 4)
    return ordered[:quarter], ordered[-quarter:]


def threshold(before: float, *, real: bool, short: bool) -> Threshold:
    """What the speed at the end must reach, in products per second."""
    fail, warn, source = (0.95, 0.98, _SOURCE) if real else (0.1, 0.5, _CPU_SOURCE)
    if real and short:
        fail, warn = 0.90, 0.95
    return Threshold(
        "≥", float(f"{fail * before:.4g}"), "products/s", "derived", source, warn * before
    )
