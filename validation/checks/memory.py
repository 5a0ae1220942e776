"""A node has at least the memory that is declared.

What it checks   the kernel's total memory is not below what slurm.conf promises (RealMemory)
Why it matters   a node with less is drained by slurmd, or kills jobs that were promised more
What to do       Less by a DIMM's size: a module has failed, the firmware's log names it. Less by a
                 little: the kernel or firmware reserves more than expected; declare what is left.
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
        found = document.measured.whole("memory_mb")
        verdict = threshold.judge(found)
        message = f"{found} MB found, {declared} declared" if verdict is Verdict.FAIL else ""
        value = Metric("memory", found, "MB")
        return Result(
            NAME, TIER, job.subject, verdict, message, value, threshold, proof=document.proof
        )

    return answer(NAME, job, reply, judge)
