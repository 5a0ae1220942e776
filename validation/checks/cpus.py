"""A node has the CPUs that are declared.

What it checks   The kernel reports exactly the declared number of CPUs. If processes outside of
                 Slurm use half of them or more, that is a warning.
Why it matters   With fewer CPUs than slurm.conf declares, jobs share cores or slurmd drains the
                 node. With more, the surplus is never used. What runs outside of Slurm takes
                 CPUs away from jobs, and makes a training on many nodes as slow as this one.
What to do       Another number: compare the node with the declaration. If the number is half or
                 double, SMT was switched in the firmware. A missing socket or core is a hardware
                 fault. In use: end what runs outside of Slurm, or move it to another machine.
                 $ ssh {node} lscpu
                 $ ssh {node} sudo slurmd -C
                 $ ssh {node} 'top -b -n 1 | head -20'
"""

from cluster.text import printable
from validation.checks.document import Document, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "cpus"
TIER = Tier.NODE
PAYLOAD = "node"

CAUSES = {
    "Another number": When(
        r"CPUs found",
        (
            "ssh {node} lscpu",
            "ssh {node} sudo slurmd -C",
        ),
    ),
    "In use": When(r"outside of Slurm", ("ssh {node} 'top -b -n 1 | head -20'",)),
}

_MUCH = 0.5  # of a node's CPUs
_LEAST = 1.0  # CPUs; one core for a moment is any daemon's


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    declared = job.nodes[0].cpus
    threshold = Threshold("=", declared, "CPUs", "declared", "inventory")

    def judge(document: Document) -> Result:
        cpus = document.measured.whole("cpus")
        verdict = threshold.judge(cpus)
        message = f"{cpus} CPUs found, {declared} declared" if verdict is Verdict.FAIL else ""
        metrics = [Metric("cpus_allowed", document.measured.whole("cpus_allowed"), "CPUs")]
        if document.measured.has("outside"):
            outside = document.measured.inner("outside")
            used, largest = outside.number("cpus"), printable(outside.text("largest"), 40)
            if used < 0:
                raise Unusable(f"{used:g} CPUs are used outside of Slurm")
            metrics.append(Metric("CPUs used outside of Slurm", used, "CPUs"))
            if verdict is Verdict.PASS and used >= max(_LEAST, _MUCH * cpus):
                verdict = Verdict.WARN
                message = f"processes outside of Slurm use {used:g} of {cpus} CPUs, most: {largest}"
        return Result(
            NAME,
            TIER,
            job.subject,
            verdict,
            message,
            Metric("cpus", cpus, "CPUs"),
            threshold,
            tuple(metrics),
            document.proof,
        )

    return answer(NAME, job, reply, judge)
