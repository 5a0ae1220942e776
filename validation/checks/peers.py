"""Copies between each two GPUs of a node are intact and fast enough.

What it checks   Data is copied between all ordered pairs, one after another. Every byte arrives
                 unchanged. The bandwidth reaches the model's threshold for that number of GPUs, and
                 does not exceed what the links can do.
Why it matters   One link that is slow or corrupts data affects every collective on the node.
What to do       Slow: if one GPU is slow with all others, check its NVLinks. If one pair is slow,
                 check the bridge or switch between them. Without NVLink, everything uses PCIe:
                 check ACS and IOMMU. A wrong byte: take both GPUs out of service until you know
                 which one it is. Too fast: check the node's clock.
                 $ ssh {node} 'nvidia-smi topo -m; nvidia-smi nvlink -s; nvidia-smi nvlink -e'
"""

from validation.checks import computed
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Reply, Result, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "peers"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD

CAUSES = {
    "Slow": When(r"at least \S+ expected|close to the threshold"),
    "A wrong byte": When(r"bytes are wrong"),
    "Too fast": When(r"more than the hardware", ("ssh {node} timedatectl",)),
}


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    """SKIP on a node with one GPU, which the plan has to have foreseen."""

    def judge(document: Document) -> Result:
        node = computed.read(job, document)
        if len(node.gpus) == 1:
            message = "a node with one GPU has no pair of them"
            return Result(
                NAME, TIER, job.subject, Verdict.SKIP, message, proof=document.proof, blamed=()
            )
        report = computed.Report()
        computed.started(report, node)
        rows = document.measured.items("pairs")
        pairs = [(row.whole("source"), row.whole("target")) for row in rows]
        count = len(node.gpus)
        all_pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
        if pairs != all_pairs:
            raise Unusable(
                f"{len(pairs)} pairs of GPUs were measured, not each of {len(all_pairs)}"
            )
        for row in rows:
            _judge(report, node, row, rules)
        return report.result(NAME, job, document, rules)

    return answer(NAME, job, reply, judge)


def _judge(report: computed.Report, node: computed.NodeAnswer, row: Fields, rules: Rules) -> None:
    source, target = node.gpus[row.whole("source")], node.gpus[row.whole("target")]
    what, own = f"GPU {source.index} to {target.index}", computed.gpu_rules(rules)
    if problem := computed.problem(row):
        # One that did not start has already been told, without all its pairs.
        if source.problem is None and target.problem is None:
            report.failed_to_measure(what, problem)
        return
    if row.text("way") != "direct" and node.real:
        what += " (through the host)"
    value = computed.copied(report, node, what, row)
    if value is None:
        return
    peaks = (rules.common.gpu_peak.peers, own.peers_peak())
    gpus = len(node.gpus)
    sample = computed.sample("peers", source, value, row, gpus=gpus)
    report.speed(what, value, peaks, own.peer_speed(gpus, source.name), sample)
