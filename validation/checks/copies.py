"""Copies between host memory and each GPU are intact and fast enough.

What it checks   Data is copied from page-locked host memory near the GPU to the GPU and back, one
                 GPU after another. Every byte returns unchanged. The bandwidth reaches the model's
                 threshold, and does not exceed what the bus can do. Where nothing shows which CPUs
                 are near a GPU, or the job has none of them, the result says so.
Why it matters   Data loading, checkpoints and offloading use these copies. A link that trained with
                 half its lanes halves their speed, and nobody notices for years.
What to do       Slow: if it is slow in both directions, the PCIe generation or width is below that
                 of slot and board; reseat the board, check the riser and the firmware. If it is
                 slow on all GPUs, check IOMMU, ACS and the CPU's power profile; if it is slow from
                 CPUs that may be far away, repeat it with the CPUs of the GPU's own socket. A wrong
                 byte: take the GPU out of service. Too fast: check the node's clock.
                 $ ssh {node} 'nvidia-smi -q -d PCIE; nvidia-smi topo -m'
"""

from validation.checks import computed
from validation.checks.document import Document, Fields, answer
from validation.model import Job, Metric, Reply, Result, Tier, When
from validation.payloads.gpu_memory import DIRECTIONS
from validation.thresholds import Rules

NAME = "copies"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD

CAUSES = {
    "Slow": When(r"at least \S+ expected|close to the threshold"),
    "A wrong byte": When(r"bytes are wrong", ("ssh {node} dcgmi diag --run 3",)),
    "Too fast": When(r"more than the hardware", ("ssh {node} timedatectl",)),
}

WORDS = {"h2d": "from the host", "d2h": "to the host"}


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        node = computed.read(job, document)
        report = computed.Report()
        for gpu in computed.started(report, node):
            for direction, row in gpu.rows("copies", "direction", DIRECTIONS):
                _judge(report, node, gpu, direction, row, rules)
        if node.real:
            _bound(report, node)
        return report.result(NAME, job, document, rules)

    return answer(NAME, job, reply, judge)


def _bound(report: computed.Report, node: computed.NodeAnswer) -> None:
    """Tells whose process did not run on the CPUs near its GPU, because nothing showed them."""
    loose = []
    for gpu in node.gpus:
        if gpu.problem is None:
            near = gpu.row.inner("start").whole("numa_cpus")
            report.metrics.append(Metric(f"{gpu.title}, CPUs near it", near))
            loose += [] if near else [gpu.title]
    if loose:
        report.notes.append(f"copied from CPUs that may be far away: {', '.join(loose)}")


def _judge(
    report: computed.Report,
    node: computed.NodeAnswer,
    gpu: computed.GpuAnswer,
    direction: str,
    row: Fields,
    rules: Rules,
) -> None:
    what, own = f"{gpu.title}, {WORDS[direction]}", computed.gpu_rules(rules)
    if problem := computed.problem(row):
        report.failed_to_measure(what, problem)
        return
    value = computed.copied(report, node, what, row)
    if value is None:
        return
    peaks = (rules.common.gpu_peak.copies, own.copies_peak())
    sample = computed.sample("copies", gpu, value, row, direction=direction)
    report.speed(gpu.title, value, peaks, own.copy_speed(direction, gpu.name), sample)
