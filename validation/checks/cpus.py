"""A node has the CPUs that are declared.

What it checks   The kernel reports exactly the declared number of CPUs. Processes outside of Slurm
                 ask for no more than half of them, for longer than a moment; from a quarter on,
                 that is a warning.
Why it matters   With fewer CPUs than slurm.conf declares, jobs share cores or slurmd drains the
                 node. With more, the surplus is never used. What runs outside of Slurm takes
                 CPUs away from jobs, and makes a training on many nodes as slow as this one.
What to do       Another number: compare the node with the declaration. If the number is half or
                 double, SMT was switched in the firmware. A missing socket or core is a hardware
                 fault. In use: the processes, their users and commands are named: end them, or move
                 them to another machine.
                 $ ssh {node} lscpu
                 $ ssh {node} sudo slurmd -C
                 $ ssh {node} 'ps -eo pid,user,pcpu,comm,cgroup --sort=-pcpu | head -20'
"""

from dataclasses import dataclass

from cluster.text import printable
from validation.checks.document import Document, Fields, Unusable, answer
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
    "In use": When(
        r"outside of Slurm",
        ("ssh {node} 'ps -eo pid,user,pcpu,comm,cgroup --sort=-pcpu | head -20'",),
    ),
}

_LEAST = 1.0  # CPUs: of less nothing is told
# One process that is busy, such as an update of packages, is a warning, however small the node is.
_SEVERAL = 1.5
_ROUNDED = 0.02


@dataclass(frozen=True, slots=True)
class _Outside:
    """What processes outside of Slurm used, would have used, and for how long; and who they are."""

    cpus: float
    asked: float
    seconds: float
    processes: tuple[str, ...]

    @classmethod
    def read(cls, fields: Fields) -> "_Outside":
        cpus, asked, seconds = (fields.number(name) for name in ("cpus", "asked", "seconds"))
        if min(cpus, asked, seconds) < 0 or cpus > asked + _ROUNDED:
            raise Unusable(f"{cpus:g} CPUs are used outside of Slurm, {asked:g} asked for")
        return cls(cpus, asked, seconds, tuple(map(_process, fields.items("processes"))))

    def verdict(self, most: Threshold, cpus: int) -> Verdict:
        if self.asked < _LEAST or cpus == 0:
            return Verdict.PASS
        verdict = most.judge(self.asked / cpus)
        return Verdict.WARN if verdict is Verdict.FAIL and self.asked < _SEVERAL else verdict

    def sentence(self, cpus: int) -> str:
        who = "; ".join(self.processes)
        return printable(
            f"processes outside of Slurm ask for {self.asked:g} of {cpus} CPUs and have "
            f"{self.cpus:g}, for {self.seconds:g} s: {who}",
            300,
        )


def _process(item: Fields) -> str:
    """Such as "pid 4711, root, stress-ng, 1.98 CPUs"."""
    names = (printable(item.text(name), 40) for name in ("user", "command"))
    return f"pid {item.whole('pid')}, {', '.join(names)}, {item.number('asked'):g} CPUs"


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    declared = job.nodes[0].cpus
    threshold = Threshold("=", declared, "CPUs", "declared", "inventory")

    def judge(document: Document) -> Result:
        cpus = document.measured.whole("cpus")
        verdict = threshold.judge(cpus)
        message = f"{cpus} CPUs found, {declared} declared" if verdict is Verdict.FAIL else ""
        metrics = [Metric("cpus_allowed", document.measured.whole("cpus_allowed"), "CPUs")]
        value, limit = Metric("cpus", cpus, "CPUs"), threshold
        if document.measured.has("outside"):
            others = _Outside.read(document.measured.inner("outside"))
            metrics.append(Metric("CPUs used outside of Slurm", others.cpus, "CPUs"))
            metrics.append(Metric("CPUs asked for outside of Slurm", others.asked, "CPUs"))
            most = rules.common.limits["outside_cpu_share"]
            found = others.verdict(most, cpus)
            if verdict is Verdict.PASS and found is not Verdict.PASS:
                verdict, message = found, others.sentence(cpus)
                value, limit = Metric("share of CPUs", round(others.asked / cpus, 3)), most
        return Result(
            NAME,
            TIER,
            job.subject,
            verdict,
            message,
            value,
            limit,
            tuple(metrics),
            document.proof,
        )

    return answer(NAME, job, reply, judge)
