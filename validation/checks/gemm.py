"""Every GPU multiplies matrices correctly, and as fast as its model should.

What it checks   All GPUs of the node compute products in bf16, fp16, tf32, fp32 and fp8 (if
                 supported) at the same time. Sampled elements equal those in float64 except for
                 rounding. The speed reaches the model's threshold for that type and shape, and does
                 not exceed what the hardware can do. The first type is measured twice: in its first
                 second, and after eight more of the same load. The later figure is judged, and it
                 must not be far below the first.
Why it matters   Training consists of matrix products. A slow GPU delays all others; a wrong one
                 spoils what all of them learn.
What to do       Wrong: take the GPU out of service and run the vendor's diagnostics. Slow: check
                 its power limit, clocks, temperature and throttle reasons under load, and what else
                 runs on it; if all are slow, check power cap, cooling or clocks of the node. Fast
                 only when cold: check the same; `load_clocks` says what held it back. Too
                 fast: check the node's clock. Not supported: the GPU has no such type (correct the
                 model in the declaration), or this torch has none (INCONCLUSIVE; install a newer
                 torch).
                 $ ssh {node} 'nvidia-smi -q -d PERFORMANCE,POWER,CLOCK,TEMPERATURE'
                 $ ssh {node} 'dcgmi diag -r 3'

A speed is 2 m n k operations over the median time of a product. It is computed here from the times;
the payload's own figure must agree with it.
"""

import math
from collections.abc import Sequence

from validation.checks import computed
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules
from validation.thresholds.gpu import TFLOPS

NAME = "gemm"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD

CAUSES = {
    "Wrong": When(r"product is wrong", ("ssh {node} 'dcgmi diag -r 3'",)),
    "Slow": When(
        r"at least \S+ expected|close to the threshold",
        ("ssh {node} 'nvidia-smi -q -d PERFORMANCE,POWER,CLOCK,TEMPERATURE'",),
    ),
    "Fast only when cold": When(
        r"in its first second", ("ssh {node} 'nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE'",)
    ),
    "Too fast": When(r"more than the hardware", ("ssh {node} timedatectl",)),
    "Not supported": When(r"ask for it|none of the types", ("ssh {node} nvidia-smi -L",)),
}

_GRID = 64  # rows and columns of a product that are sampled at most

ROUNDING = Threshold(
    "≤",
    8,
    "",
    "derived",
    "in units of what rounding may do (payloads/gpu_gemm.py); healthy products on CPUs stay below "
    "3, a wrong element is hundreds away",
)


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        node = computed.read(job, document)
        report = computed.Report()
        for gpu in computed.started(report, node):
            rows = gpu.rows("gemm", "dtype", node.config.dtypes)
            computed.some(report, gpu, rows)
            _sustained(report, node, gpu, rows, rules)
            for kind, row in rows:
                _judge(report, node, gpu, kind, row, rules)
        return report.result(NAME, job, document, rules)

    return answer(NAME, job, reply, judge)


def _judge(
    report: computed.Report,
    node: computed.NodeAnswer,
    gpu: computed.GpuAnswer,
    kind: str,
    row: Fields,
    rules: Rules,
) -> None:
    """Adds what is to say of one GPU's products of one type."""
    what, own = f"{gpu.title}, {kind}", computed.gpu_rules(rules)
    if problem := computed.problem(row):
        report.failed_to_measure(what, problem)
        return
    if missing := row.maybe_text("unsupported"):
        if node.real and kind in own.gemm_dtypes(gpu.name):
            # A torch that is too old for a type says nothing of a GPU that has it.
            told = Verdict.INCONCLUSIVE if row.flag("in_hardware") else Verdict.FAIL
            limit = own.gemm_speed(kind, (node.config.gemm_size,) * 3, gpu.name)
            message = f"{what}: {missing}; the thresholds of {rules.hardware} ask for it"
            value = Metric(what, "not supported")
            report.findings.append(computed.Finding(told, message, value, limit))
        return
    value = speed(node, what, row)
    _right(report, what, row, node.config.gemm_size)
    if not node.real:
        report.metrics.append(Metric(f"CPU, {value.name}", value.value, TFLOPS))
        return
    peaks = (rules.common.gpu_peak.gemm[kind], own.gemm_peak(kind))
    shape = (node.config.gemm_size,) * 3
    sample = computed.sample("gemm", gpu, value, row, dtype=kind, shape=shape)
    report.speed(gpu.title, value, peaks, own.gemm_speed(kind, shape, gpu.name), sample)


def _sustained(
    report: computed.Report,
    node: computed.NodeAnswer,
    gpu: computed.GpuAnswer,
    rows: Sequence[tuple[str, Fields]],
    rules: Rules,
) -> None:
    """Holds what the first type that it could multiply reached against its first second."""
    if not node.real or not node.config.sustain_s:
        return
    if any(computed.problem(row) for _, row in rows):
        return  # that is told; and which one met a GPU that was cold is not known
    able = ((kind, row) for kind, row in rows if not row.maybe_text("unsupported"))
    kind, row = next(able, ("", None))
    if row is None:
        return
    what = f"{gpu.title}, {kind}"
    if not row.has("first"):
        raise Unusable(f"{what}: its first second was not measured")
    first, later = (
        _tflops(node, f"{gpu.title}, first second", row.inner("first")),
        speed(node, what, row),
    )
    report.metrics.append(first)
    share = Metric(
        f"{what}, of its first second", round(float(later.value) / float(first.value), 3)
    )
    limit = rules.common.limits["gpu_sustained_share"]
    report.judged.append((share, limit))
    if (verdict := limit.judge(share.value)) is not Verdict.PASS:
        message = (
            f"{what} is {later.value} TFLOPS after {node.config.sustain_s:g} s of load, "
            f"{first.value} in its first second"
        )
        report.findings.append(computed.Finding(verdict, message, share, limit))


def speed(node: computed.NodeAnswer, what: str, row: Fields) -> Metric:
    """In TFLOPS. Raises Unusable for another shape than was asked for, and impossible times."""
    size = node.config.gemm_size
    shape = tuple(row.whole(side) for side in ("m", "n", "k"))
    if shape != (size,) * 3:
        raise Unusable(f"{what}: multiplied {shape}, asked for {(size,) * 3}")
    return _tflops(node, what, row)


def _tflops(node: computed.NodeAnswer, what: str, row: Fields) -> Metric:
    seconds = computed.median_s(row, what, node.config.least)
    operations = 2 * node.config.gemm_size**3
    tflops = computed.agreed(row, "tflops", operations / seconds / 1e12, what)
    return Metric(what, float(f"{tflops:.5g}"), TFLOPS)


def _right(report: computed.Report, what: str, row: Fields, size: int) -> None:
    """Holds the sampled elements against what rounding may do."""
    checked, expected = row.whole("checked"), min(_GRID, size) ** 2
    if checked != expected:
        raise Unusable(f"{what}: {checked} of {expected} elements were held against float64")
    error = computed.number_or_inf(row, "rounding_error")
    if error < 0:
        raise Unusable(f"{what}: a difference of {error:g}")
    value = Metric(f"{what}, rounding", round(error, 3) if math.isfinite(error) else "not finite")
    report.judged.append((value, ROUNDING))
    if not error <= float(ROUNDING.value):
        place = f"row {row.whole('row')}, column {row.whole('column')}"
        report.fail(
            f"{what}: the product is wrong at {place}, {value.value} times what rounding may do",
            value,
            ROUNDING,
        )
