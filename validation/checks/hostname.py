"""A node has the host name by which Slurm knows it.

What it checks   The node's host name is the one by which Slurm reaches it (NodeHostname, which is
                 the NodeName unless configured otherwise).
Why it matters   slurmd finds its own configuration by the host name. If two machines are swapped,
                 each answers for the other, and the wrong one is repaired.
What to do       Set the host name that the inventory declares, then restart slurmd. If two nodes
                 have each other's name, check their addresses in DNS and /etc/hosts.
                 $ ssh {node} hostnamectl
                 $ scontrol show node {node}
"""

from validation.checks.document import Document, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict
from validation.thresholds import Rules

NAME = "hostname"
TIER = Tier.NODE
PAYLOAD = "node"


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    name = job.hosts[0]
    configured = next((s.hostname for s in reply.states if s.name == name), "")
    expected = (configured or name).split(".", 1)[0]
    threshold = Threshold(
        "=", expected, "", "declared", "NodeHostname in Slurm, from the inventory"
    )

    def judge(document: Document) -> Result:
        hostname = document.measured.text("hostname")
        # A host name with or without its domain is the same.
        verdict = threshold.judge(hostname.split(".", 1)[0])
        message = f"the host calls itself {hostname}" if verdict is Verdict.FAIL else ""
        value = Metric("hostname", hostname)
        return Result(
            NAME, TIER, job.subject, verdict, message, value, threshold, proof=document.proof
        )

    return answer(NAME, job, reply, judge)
