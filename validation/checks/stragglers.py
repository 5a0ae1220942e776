"""No GPU is slower than the others of its kind, whatever the absolute thresholds are.

What it checks   The figures are matrix products of each type, GPU memory, and copies from and to
                 the host. Each figure of each GPU is compared with its median over all GPUs of that
                 name, on all nodes with the same number of GPUs of one model; there must be at
                 least three GPUs. More than 5 % below the median, or more than four median absolute
                 deviations if that is more (six for three or four GPUs), is a warning, and so is
                 less than three quarters of the fastest GPU. Less than three quarters of the median
                 is a failure. The node's slowest figure is shown.
Why it matters   A training over many GPUs runs at the speed of the slowest one, and no other check
                 distinguishes a slow GPU from a slow model.
What to do       A slow GPU: if it is one of a node, check its temperature, power and throttle
                 reasons under load. If it is all of a node, check its power supply, cooling, clocks
                 and CPU power profile, and what else runs there. If only copies from and to the
                 host are slow, check the link of that GPU. Figures that are missing: another check
                 says why; see cuda and gemm. Too few to compare: no node is at fault; select more
                 nodes of this kind.
                 $ ssh {node} 'nvidia-smi -q -d PERFORMANCE,POWER,CLOCK,TEMPERATURE'
                 $ ssh {node} 'nvidia-smi topo -m; lscpu | grep -e NUMA -e MHz'

The centre is the median, and the spread the median absolute deviation (MAD), because neither moves
with the outlier that is looked for. From three values on one outlier cannot move the median beyond
the other two; of two nobody knows which one is wrong. The MAD of few values is too small: as an
estimate of the spread of three or four normal ones it has to be 1.5 and 1.36 times as large (Croux
and Rousseeuw, "Time-efficient algorithms for two highly robust estimators of scale", 1992), so six
of them stand there for four. Where half of the GPUs are slow, as all of one of two nodes are, the
median lies between both halves and the spread is as large: then the fastest GPU tells.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from cluster.text import printable
from validation.checks import computed, copies, gemm, hbm
from validation.checks.comparison import ComparedNode, Kind, of_each_kind
from validation.checks.document import Document, Unusable
from validation.model import Job, Metric, Result, Threshold, Tier, Verdict, When, worst
from validation.payloads.gpu_memory import DIRECTIONS, MOVED

NAME = "stragglers"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD

CAUSES = {
    "A slow GPU": When(r"the median of \d+ GPUs is"),
    "Figures that are missing": When(r"not measured", ("ssh {node} nvidia-smi",)),
    "Too few to compare": When(r"too few to find", ("sinfo --Node --long",)),
}

FEWEST_GPUS = 3

# 5 % is the variance that SuperBench allows (docs/user-tutorial/data-diagnosis.md), and gpu-fryer
# flags 10 % below the best. It is a warning only: a hot place in a rack is no broken GPU, and the
# absolute thresholds say what is too slow for the model. At three quarters NVIDIA's resiliency
# extension calls a rank a straggler by default, and DCGM sets its gates: such a GPU fails.
_SHARE = 0.05
_DEVIATIONS = 4
_FEW, _DEVIATIONS_OF_FEW = 5, 6  # MADs where there are fewer values
_BROKEN = 0.75


@dataclass(frozen=True, slots=True)
class _Figure:
    """One speed of one GPU; comparable with others that have `equals`."""

    equals: tuple[str, str]
    value: Metric


@dataclass(frozen=True, slots=True)
class _Node:
    figures: tuple[_Figure, ...]
    lacking: tuple[str, ...]


def compare(members: Sequence[ComparedNode]) -> list[Result]:
    return of_each_kind(NAME, members, _figures, _judge)


def limit(values: Collection[float], unit: str) -> Threshold | None:
    """What none of these values should lie below; None for fewer than three.

    A warning below the median less 5 % of it or four MADs (six of fewer than five values),
    whichever is more, and below three quarters of the highest; a failure below three quarters of
    the median, however far the values scatter.
    """
    if len(values) < FEWEST_GPUS:
        return None
    median = statistics.median(values)
    spread = statistics.median(abs(value - median) for value in values)
    deviations = _DEVIATIONS if len(values) >= _FEW else _DEVIATIONS_OF_FEW
    fail = _BROKEN * median
    apart = median - max(_SHARE * median, deviations * spread)
    warn = max(fail, apart, _BROKEN * max(values))
    source = (
        f"the median of {len(values)} GPUs is {median:.4g}: WARN below it by 5 % or {deviations} "
        "MADs, what is more, and below three quarters of the fastest; FAIL below three quarters "
        "of it"
    )
    return Threshold("≥", round(fail, 4), unit, "derived", source, round(warn, 4))


def _figures(job: Job, document: Document) -> _Node:
    node = computed.read(job, document)
    if not node.real:
        raise Unusable("a CPU's figures prove nothing about a GPU's speed")
    figures: list[_Figure] = []
    lacking: list[str] = []
    for gpu in node.gpus:
        if gpu.problem is not None:
            lacking.append(gpu.title)
            continue
        for what, metric in _of_gpu(node, gpu):
            if metric is None:
                lacking.append(f"{gpu.title}, {what}")
            else:
                figures.append(_Figure((gpu.name, what), metric))
    return _Node(tuple(figures), tuple(lacking))


def _of_gpu(
    node: computed.NodeAnswer, gpu: computed.GpuAnswer
) -> Iterator[tuple[str, Metric | None]]:
    """Each figure of a GPU by its name, None for one that was not measured."""
    for kind, row in gpu.rows("gemm", "dtype", node.config.dtypes):
        if computed.problem(row) is not None:
            yield kind, None
        elif row.maybe_text("unsupported") is None:
            yield kind, gemm.speed(node, f"{gpu.title}, {kind}", row)
    for operation, row in gpu.rows("memory", "operation", tuple(MOVED)):
        failed = computed.problem(row) is not None
        what = f"{gpu.title}, {operation}"
        yield operation, None if failed else hbm.speed(node, gpu, operation, what, row)
    for direction, row in gpu.rows("copies", "direction", DIRECTIONS):
        words = copies.WORDS[direction]
        failed = computed.problem(row) is not None
        yield words, None if failed else computed.copy_speed(node, f"{gpu.title}, {words}", row)


def _judge(kind: Kind, answers: Sequence[tuple[Job, Document, _Node]]) -> Iterable[Result]:
    values: dict[tuple[str, str], list[float]] = {}
    for _, _, node in answers:
        for figure in node.figures:
            values.setdefault(figure.equals, []).append(float(figure.value.value))
    units = {figure.equals: figure.value.unit for _, _, node in answers for figure in node.figures}
    limits = {equals: limit(numbers, units[equals]) for equals, numbers in values.items()}
    for job, document, node in answers:
        judged = [
            (figure.value, threshold)
            for figure in node.figures
            if (threshold := limits[figure.equals]) is not None
        ]
        few = [len(values[item.equals]) for item in node.figures if limits[item.equals] is None]
        yield _result(kind, job, document, node, judged, few)


def _result(
    kind: Kind,
    job: Job,
    document: Document,
    node: _Node,
    judged: Sequence[tuple[Metric, Threshold]],
    few: Sequence[int],
) -> Result:
    verdicts = [(threshold.judge(value.value), value, threshold) for value, threshold in judged]
    verdict, message = worst(own for own, _, _ in verdicts), ""
    if verdict is not Verdict.FAIL and (few or node.lacking or not verdicts):
        verdict, message = Verdict.INCONCLUSIVE, _unknown(node, few) + kind.missing
    elif verdict is not Verdict.PASS:
        those = [
            _sentence(value, threshold) for own, value, threshold in verdicts if own is verdict
        ]
        message = computed.spelled_out(those)
    shown = min(judged, key=_room, default=None)
    return Result(
        NAME,
        TIER,
        job.subject,
        verdict,
        printable(message, 300),
        shown[0] if shown else Metric("compared", 0, "figures"),
        shown[1] if shown else None,
        tuple(figure.value for figure in node.figures),
        document.proof,
    )


def _sentence(value: Metric, threshold: Threshold) -> str:
    return f"{value.name} is {value.value} {value.unit}; {threshold.source.partition(':')[0]}"


def _unknown(node: _Node, few: Sequence[int]) -> str:
    if node.lacking:
        return f"not measured: {computed.spelled_out(node.lacking)}"
    count = max(few, default=0)
    return f"figures of {count} GPUs are too few to find a slow one, {FEWEST_GPUS} are needed"


def _room(item: tuple[Metric, Threshold]) -> float:
    """How far a figure is from the threshold at which it fails; the least is shown."""
    metric, threshold = item
    least = float(threshold.value)
    return float(metric.value) / least if least > 0 else math.inf
