"""A training is measured on one rank, one node, two nodes, four … and all nodes, in one job.

What it checks   Each size trains with exactly its ranks: a sum over them is right, and their
                 parameters are equal bit by bit although each has data of its own. For each size
                 the report has tokens per second, weak efficiency (as much work on each rank),
                 strong efficiency (as much work in all), the efficiency of a pipeline beside that
                 of an ideal one, and MFU where the peak of the GPU is known. Weak efficiency with
                 all ranks must reach the threshold, and MFU must not exceed 1.
Why it matters   Twice the nodes that are not nearly twice as fast waste the difference, and where
                 the curve bends shows what limits it: the links in a node, those between two, or a
                 switch.
What to do       Not together: the ranks of one size did not train one model, so no time of it
                 counts; run all_reduce and ddp on these nodes. Faster than the hardware: check the
                 clocks of the nodes, and peak and name of the GPU in the thresholds file. Too
                 little gained: find the size at which efficiency falls. At one node, see peers and
                 nvlink. At two nodes, see all_reduce and the transport that it names. Later, run
                 the suite network, which names slow nodes, links and groups. Once it is as it
                 should be, set your own threshold (`scaling` in common.yml).

tokens per second = ranks * batch * sequence / step time
weak efficiency   = tokens per second of n ranks / (n * tokens per second of one)
strong efficiency = step time of one rank / (n * step time of n), with as many sequences in all
pipeline          = step time of one stage / step time of p stages; ideal m/(m+p-1), which leaves
                    the bubble (p-1)/(m+p-1), of m microbatches (payloads/pipeline.py)
MFU               = (6 P + 12 L H Q T) * tokens per second / (ranks * peak): P parameters that each
                    token is multiplied with, L layers, H heads of width Q, T tokens of a sequence
                    (Chowdhery et al., "PaLM", arXiv:2204.02311, appendix B); the peak is that of
                    the thresholds file of the model, without sparsity
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from validation.checks import commands, transport
from validation.checks.document import Document, Fields, Unusable
from validation.checks.pipeline import LONGEST_CHAIN
from validation.checks.together import Judged, answer, expected
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "scaling"
TIER = Tier.CLUSTER
PAYLOAD = "scaling"

CAUSES = {
    "Not together": When(
        r"ranks trained|a sum over|that trained together|is not finite", (commands.KERNEL,)
    ),
    "Faster than the hardware": When(r"more than the hardware", (commands.CLOCK,)),
    "Too little gained": When(
        r"at least \S+ expected|close to the threshold", (commands.BUSY, commands.PACKETS)
    ),
}
SHARED = (transport,)

WEAK, STRONG = "weak efficiency", "strong efficiency"
PIPELINE, IDEAL = "pipeline efficiency", "pipeline efficiency, ideal"
TOKENS, MFU = "tokens per second", "MFU"

_DTYPES = ("fp32", "bf16", "fp16")
_MEASURED = Threshold("=", 0, "sizes", "defined", "each size trains with exactly its ranks")
_PEAK = Threshold("≤", 1, "", "defined", "no training multiplies faster than the hardware")


@dataclass(frozen=True, slots=True)
class Size:
    """One size's step times in seconds; None for what is not measured at it."""

    ranks: int
    nodes: int
    weak_s: float
    strong_s: float | None
    pipeline_s: float | None

    def named(self, what: str) -> str:
        ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        return f"{what}, {ranks} on {self.nodes} node{'s' if self.nodes > 1 else ''}"


def sizes(ranks: int, nodes: int) -> list[int]:
    """How many ranks train together: one, those of one node, of two, of four … of all nodes.

    >>> sizes(24, 3), sizes(5, 5), sizes(1, 1)
    ([1, 8, 16, 24], [1, 2, 4, 5], [1])
    """
    each, counts, count = ranks // nodes, {1, ranks}, 1
    while count < nodes:
        counts.add(each * count)
        count *= 2
    return sorted(counts)


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Judged:
        measured = document.measured
        rows = measured.items("sizes")
        wanted = sizes(job.ranks, len(job.nodes))
        if (counts := [row.whole("ranks") for row in rows]) != wanted:
            raise Unusable(f"measured with {counts[:16]} ranks, asked for {wanted}")
        if wrong := [problem for row in rows if (problem := _wrong(row))]:
            value = Metric("sizes that did not train together", len(wrong), "sizes")
            return Judged(Verdict.FAIL, wrong[0], value, _MEASURED)
        found = [_read(row, job) for row in rows]
        dtype = measured.text("dtype")
        if dtype not in _DTYPES:
            raise Unusable(f"trained in {dtype}")
        peak = rules.model.gpu.gemm_peak(dtype) if rules.model and job.backend == "nccl" else None
        metrics = [
            metric for size in found for metric in _metrics(job, measured, found[0], size, peak)
        ]
        return replace(_judged(job, found, metrics, rules), metrics=tuple(metrics))

    return answer(NAME, job, reply, judge)


def _wrong(row: Fields) -> str:
    """Why a size is not what it says, or nothing."""
    count = row.whole("ranks")
    if row.whole("took_part") != count:
        return f"{row.whole('took_part')} of {count} ranks trained"
    sums = row.numbers("summed")
    if len(sums) != count or set(sums) != {count * (count + 1) / 2}:
        return f"a sum over {count} ranks is wrong: {', '.join(f'{item:g}' for item in sums[:8])}"
    if not row.flag("in_step"):
        return f"the parameters of {count} ranks that trained together differ"
    if not row.flag("losses_finite"):
        return f"the loss of a training on {count} ranks is not finite"
    return ""


def _read(row: Fields, job: Job) -> Size:
    count, total = row.whole("ranks"), _whole(job.config, "total")
    each = job.ranks // len(job.nodes)
    size = Size(
        count,
        max(1, count // each),
        row.number("weak_s"),
        row.number("strong_s") if row.has("strong_s") else None,
        row.number("pipeline_s") if row.has("pipeline_s") else None,
    )
    if (size.strong_s is None) is not (count > total):
        raise Unusable(f"strong scaling of {count} ranks with {total} sequences: {size.strong_s}")
    if (size.pipeline_s is None) is not (count > LONGEST_CHAIN):
        raise Unusable(f"a pipeline of {count} stages: {size.pipeline_s}")
    times = [size.weak_s, size.strong_s, size.pipeline_s]
    if any(seconds is not None and seconds <= 0 for seconds in times):
        raise Unusable(f"a step on {count} ranks took no time")
    return size


def _metrics(
    job: Job, measured: Fields, one: Size, size: Size, peak: Threshold | None
) -> list[Metric]:
    config = job.config
    batch, sequence = _whole(config, "batch"), _whole(config, "sequence")
    speed = size.ranks * batch * sequence / size.weak_s
    metrics = [
        Metric(size.named(TOKENS), round(speed, 1), "1/s"),
        Metric(size.named(WEAK), round(one.weak_s / size.weak_s, 4)),
    ]
    if size.strong_s is not None and one.strong_s is not None:
        efficiency = one.strong_s / (size.ranks * size.strong_s)
        metrics.append(Metric(size.named(STRONG), round(efficiency, 4)))
    if size.pipeline_s is not None and one.pipeline_s is not None:
        microbatches = _whole(config, "microbatches")
        ideal = microbatches / (microbatches + size.ranks - 1)
        metrics.append(Metric(size.named(PIPELINE), round(one.pipeline_s / size.pipeline_s, 4)))
        metrics.append(Metric(size.named(IDEAL), round(ideal, 4)))
    multiplied = measured.whole("parameters_multiplied")
    if not 0 < multiplied < measured.whole("parameters"):
        raise Unusable(f"{multiplied} of {measured.whole('parameters')} parameters are multiplied")
    if peak is not None and not isinstance(peak.value, str):
        attention = 12 * _whole(config, "depth") * _whole(config, "width") * sequence
        flops = (6 * multiplied + attention) * speed
        used = flops / (size.ranks * float(peak.value) * 1e12)
        metrics.append(Metric(size.named(MFU), round(used, 4)))
    return metrics


def _judged(job: Job, found: list[Size], metrics: list[Metric], rules: Rules) -> Judged:
    used = [metric for metric in metrics if metric.name.startswith(MFU)]
    for metric in used:
        if _PEAK.judge(metric.value) is Verdict.FAIL:
            message = f"{metric.name} is {metric.value}, more than the hardware can: it is no time"
            return Judged(Verdict.FAIL, message, metric, _PEAK)
    if job.ranks == 1:
        value = Metric("sizes that did not train together", 0, "sizes")
        return Judged(Verdict.PASS, "", value, _MEASURED)
    name = found[-1].named(WEAK)
    value = next(metric for metric in metrics if metric.name == name)
    floor = rules.common.scaling[job.backend or ""]
    verdict = floor.judge(value.value)
    return Judged(verdict, expected(verdict, value, floor), value, floor)


def _whole(config: Mapping[str, Any], name: str) -> int:
    value = config[name]
    assert isinstance(value, int)
    return value
