"""A node has the CPUs that are declared.

What it checks   The kernel reports exactly the declared number of CPUs.
Why it matters   With fewer CPUs than slurm.conf declares, jobs share cores or slurmd drains the
                 node. With more, the surplus is never used.
What to do       Compare the node with the declaration. If the number is half or double, SMT was
                 switched in the firmware. A missing socket or core is a hardware fault.
                 $ ssh {node} lscpu
                 $ ssh {node} sudo slurmd -C
"""

from validation.checks.document import Document, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict
from validation.thresholds import Rules

NAME = "cpus"
TIER = Tier.NODE
PAYLOAD = "node"


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    declared = job.nodes[0].cpus
    threshold = Threshold("=", declared, "CPUs", "declared", "inventory")

    def judge(document: Document) -> Result:
        cpus = document.measured.whole("cpus")
        verdict = threshold.judge(cpus)
        message = f"{cpus} CPUs found, {declared} declared" if verdict is Verdict.FAIL else ""
        return Result(
            NAME,
            TIER,
            job.subject,
            verdict,
            message,
            Metric("cpus", cpus, "CPUs"),
            threshold,
            (Metric("cpus_allowed", document.measured.whole("cpus_allowed"), "CPUs"),),
            document.proof,
        )

    return answer(NAME, job, reply, judge)
