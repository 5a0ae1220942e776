"""Every GPU's memory is as fast as its model's should be, and keeps what is written.

What it checks   All GPUs of the node run a copy and a triad over buffers several times as large as
                 the L2 cache at the same time; bytes read and written are counted. Every element of
                 the result is right. The bandwidth reaches the model's threshold, and does not
                 exceed what the memory can do. Then all memory that is free is filled with numbers
                 that belong to their place, read back, and the same with every bit inverted.
Why it matters   Most operations of a model wait for memory, and inference does so nearly always.
What to do       Wrong elements: take the GPU out of service. Slow: check the memory clock, remapped
                 rows, ECC errors, and what else runs on the GPU. Too fast: check the node's clock.
                 $ ssh {node} 'nvidia-smi -q -d CLOCK,ECC,ROW_REMAPPER,PERFORMANCE'
"""

from validation.checks import computed
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.payloads import gpu_fill
from validation.payloads.gpu_memory import MOVED
from validation.thresholds import Rules
from validation.thresholds.gpu import GBS

NAME = "hbm"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD

CAUSES = {
    "Wrong elements": When(
        r"(elements|words) are wrong", ("ssh {node} 'nvidia-smi -q -d ECC,ROW_REMAPPER'",)
    ),
    "Slow": When(r"at least \S+ expected|close to the threshold|were looked at"),
    "Too fast": When(r"more than the hardware", ("ssh {node} timedatectl",)),
}

CACHES = 4  # a buffer is at least so many L2 caches large

_FREE = 0.8  # of the memory; CUDA needs a part of the rest, and somebody else has more of it
_FREE_THRESHOLD = Threshold("≥", _FREE, "", "defined", "memory that others hold is not looked at")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        node = computed.read(job, document)
        report = computed.Report()
        for gpu in computed.started(report, node):
            for operation, row in gpu.rows("memory", "operation", tuple(MOVED)):
                _judge(report, node, gpu, operation, row, rules)
            _filled(report, node, gpu)
        return report.result(NAME, job, document, rules)

    return answer(NAME, job, reply, judge)


def _filled(report: computed.Report, node: computed.NodeAnswer, gpu: computed.GpuAnswer) -> None:
    """Every byte that was free, twice. What another process holds cannot be looked at."""
    what, row = f"{gpu.title}, all of its memory", gpu.row.inner("fill")
    if problem := computed.problem(row):
        report.failed_to_measure(what, problem)
        return
    total, free, filled, wrong = (row.whole(key) for key in ("total", "free", "filled", "wrong"))
    if not 0 < filled <= free <= total or row.whole("passes") != gpu_fill.PASSES:
        raise Unusable(f"{what}: {filled} bytes of {free} that are free, of {total}")
    if wrong > gpu_fill.PASSES * filled or row.has("first") != bool(wrong):
        raise Unusable(f"{what}: {wrong} words are wrong of {filled} bytes")
    report.exact(what, wrong, "words")
    share = Metric(f"{what}, looked at", round(filled / total, 3))
    report.metrics += [share] if node.real else []
    if filled < gpu_fill.least(free, node.real):
        report.fail(f"{what}: {filled >> 20} MiB of {free >> 20} were looked at in time", share)
    elif node.real and free < _FREE * total:
        message = f"{what}: only {free >> 20} MiB of {total >> 20} are free, and were looked at"
        report.findings.append(computed.Finding(Verdict.WARN, message, share, _FREE_THRESHOLD))


def _judge(
    report: computed.Report,
    node: computed.NodeAnswer,
    gpu: computed.GpuAnswer,
    operation: str,
    row: Fields,
    rules: Rules,
) -> None:
    what, own = f"{gpu.title}, {operation}", computed.gpu_rules(rules)
    if problem := computed.problem(row):
        report.failed_to_measure(what, problem)
        return
    value = speed(node, gpu, operation, what, row)
    report.exact(what, row.whole("wrong"), "elements")
    if not node.real:
        report.metrics.append(Metric(f"CPU, {what}", value.value, GBS))
        return
    peaks = (rules.common.gpu_peak.memory, own.memory_peak())
    sample = computed.sample("memory", gpu, value, row, operation=operation)
    report.speed(gpu.title, value, peaks, own.memory_speed(operation, gpu.name), sample)


def speed(
    node: computed.NodeAnswer, gpu: computed.GpuAnswer, operation: str, what: str, row: Fields
) -> Metric:
    """In GB/s. Raises Unusable for other buffers than asked for, and impossible times."""
    size, moved = row.whole("bytes"), row.whole("moved")
    if size != node.config.memory_bytes or moved != MOVED[operation] * size:
        raise Unusable(f"{what}: moved {moved} bytes with buffers of {size}")
    if node.real and size < CACHES * gpu.l2_bytes:
        raise Unusable(f"{what}: buffers of {size} bytes lie in an L2 cache of {gpu.l2_bytes}")
    seconds = computed.median_s(row, what, node.config.iterations)
    return Metric(what, round(computed.agreed(row, "gbs", moved / seconds / 1e9, what), 1), GBS)
