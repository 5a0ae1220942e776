"""No GPU is slower under load than those like it, over the whole time.

What it checks   The median speed of each GPU over all rounds is compared with those of all GPUs of
                 the same kind, at least three. A GPU below their median by more than 5 % and four
                 MADs (six, of three or four GPUs) is a warning, and so is one below three quarters
                 of the fastest; below three quarters of the median is a failure. A GPU that falls
                 so far below its own median in more than a tenth of the time is a warning too.
Why it matters   All GPUs of a training wait for the slowest one, and for one that is slow now and
                 then.
What to do       Slow all the time: check the GPU's temperature, clocks, power limit and throttle
                 reasons in rounds.html beside those of its neighbours. Slow now and then: look
                 there at what changes when it is slow, and for other processes. Too few GPUs: no
                 node is at fault; select more nodes of this kind.
                 $ ssh {node} 'nvidia-smi -q -d TEMPERATURE,PERFORMANCE,POWER,CLOCK'
"""

import statistics
from collections.abc import Sequence

from cluster.text import printable
from validation.checks import commands, soaked, stragglers
from validation.checks.soaked import NodeOverTime, Stretch
from validation.model import Metric, Result, Threshold, Tier, Verdict, When, worst

NAME = "soak_stragglers"
TIER = Tier.NODE
PAYLOAD = soaked.PAYLOAD
FEWEST_GPUS = stragglers.FEWEST_GPUS

CAUSES = {
    "Slow all the time": When(r"does \S+ products/s"),
    "Slow now and then": When(
        r"is slow now and then", ("ssh {node} 'nvidia-smi -q -d PERFORMANCE,POWER'", commands.BUSY)
    ),
    "Too few GPUs": When(r"too few to find", ("sinfo --Node --long",)),
}

_SHARE = 0.1  # of the windows that may lie below
_STEADY = Threshold("≤", 1.0, "", "derived", "all of the time", _SHARE)


def judge(nodes: Sequence[NodeOverTime]) -> list[Result]:
    medians: dict[tuple[str, ...], list[float]] = {}
    for node in nodes:
        for stretches in node.by_gpu.values():
            medians.setdefault(stretches[0].alike, []).append(_median(stretches))
    limits = {alike: stragglers.limit(values, "products/s") for alike, values in medians.items()}
    return [_result(node, limits) for node in nodes]


compare = soaked.comparing(NAME, judge)
over_time = judge


def _median(stretches: Sequence[Stretch]) -> float:
    return statistics.median(window.rate for each in stretches for window in each.windows)


def unsteady(stretches: Sequence[Stretch]) -> float:
    """The share of the windows that lie below the median by more than 5 % and four MADs."""
    rates = [window.rate for each in stretches for window in each.windows]
    median = statistics.median(rates)
    spread = 1.4826 * statistics.median(abs(rate - median) for rate in rates)
    least = median - max(0.05 * median, 4 * spread)
    return sum(rate < least for rate in rates) / len(rates)


def _result(node: NodeOverTime, limits: dict[tuple[str, ...], Threshold | None]) -> Result:
    judged: list[tuple[Verdict, Metric, Threshold, str]] = []
    unknown = 0
    for stretches in node.by_gpu.values():
        title, limit = stretches[0].title, limits[stretches[0].alike]
        if limit is None:
            unknown += 1
            continue
        value = Metric(f"{title} over time", float(f"{_median(stretches):.4g}"), "products/s")
        text = f"{title} does {value.value:g} products/s; {limit.source.partition(':')[0]}"
        judged.append((limit.judge(value.value), value, limit, text))
        share = unsteady(stretches)
        slow = Metric(f"{title} slow", round(share, 3), "of the time")
        text = f"{title} is slow now and then: {share:.0%} of the time"
        judged.append((_STEADY.judge(share), slow, _STEADY, text))
    what = (NAME, TIER, node.job.subject)
    if unknown:
        message = f"fewer than {FEWEST_GPUS} GPUs like these worked: too few to find a slow one"
        return Result(*what, Verdict.INCONCLUSIVE, message, proof=node.proof)
    verdict = worst(item[0] for item in judged)
    texts = [text for own, _, _, text in judged if own is verdict and verdict is not Verdict.PASS]
    shown = next(item for item in judged if item[0] is verdict)
    return Result(
        *what,
        verdict,
        printable("; ".join(texts), 300),
        shown[1],
        shown[2],
        tuple(item[1] for item in judged),
        node.proof,
    )
