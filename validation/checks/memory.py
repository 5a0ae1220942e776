"""A node has at least the memory that is declared.

What it checks   The kernel's total memory is not less than slurm.conf declares (RealMemory).
Why it matters   slurmd drains a node with less, or the node kills jobs that were promised more.
What to do       If a module's worth is missing, the module has failed; the firmware's log names it.
                 If a little is missing, the kernel or firmware reserves more than expected: declare
                 what is left.
                 $ ssh {node} free -m
                 $ ssh {node} dmidecode --type memory
"""

from validation.checks.document import Document, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict
from validation.thresholds import Rules

NAME = "memory"
TIER = Tier.NODE
PAYLOAD = "node"


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    declared = job.nodes[0].memory_mb
    threshold = Threshold("≥", declared, "MB", "declared", "inventory")

    def judge(document: Document) -> Result:
        memory_mb = document.measured.whole("memory_mb")
        verdict = threshold.judge(memory_mb)
        message = f"{memory_mb} MB found, {declared} declared" if verdict is Verdict.FAIL else ""
        value = Metric("memory", memory_mb, "MB")
        return Result(
            NAME, TIER, job.subject, verdict, message, value, threshold, proof=document.proof
        )

    return answer(NAME, job, reply, judge)
