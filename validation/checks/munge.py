"""Nodes and login node accept each other's MUNGE credentials.

What it checks   The node accepts a credential of the login node, and the login node accepts one of
                 the node.
Why it matters   Every message of Slurm carries a credential. A different key, or a clock that is
                 minutes off, cuts the node off.
What to do       `Invalid credential`: the keys differ; copy the cluster's key to the node and
                 restart munge there. `Expired` or `Rewound`: the clocks differ by minutes. No
                 answer: munged does not run.
                 $ ssh {node} systemctl status munge
                 $ ssh {node} sudo sha256sum /etc/munge/munge.key
"""

from validation.checks.document import Document, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "munge"
TIER = Tier.NODE
PAYLOAD = "node"

CAUSES = {
    "`Invalid credential`": When(
        r"Invalid|refuses (?!.*(?:Expired|Rewound|Socket|unmunge|Success))",
        ("ssh {node} sudo sha256sum /etc/munge/munge.key",),
    ),
    "`Expired` or `Rewound`": When(r"Expired|Rewound", ("ssh {node} timedatectl",)),
    "No answer": When(
        r"could not make|was not tried|no answer|Socket|unmunge|Success",
        ("ssh {node} systemctl status munge",),
    ),
}

_BOTH = "accepted both ways"
_THRESHOLD = Threshold("=", _BOTH, "", "defined", "a credential is valid on every node or on none")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        problems = [
            problem
            for problem in (_on_the_node(document, reply), _on_the_login_node(document, reply))
            if problem
        ]
        value = Metric("munge", "refused" if problems else _BOTH)
        verdict = Verdict.FAIL if problems else _THRESHOLD.judge(value.value)
        message = "; ".join(problems)
        return Result(
            NAME, TIER, job.subject, verdict, message, value, _THRESHOLD, proof=document.proof
        )

    return answer(NAME, job, reply, judge)


def _on_the_node(document: Document, reply: Reply) -> str:
    if reply.munge is None:
        return "the login node made no credential"
    if reply.munge.encode_error:
        return f"the login node could not make a credential: {reply.munge.encode_error}"
    decoded = document.measured.maybe_text("munge_decoded")
    if decoded and decoded.startswith("Success"):
        return ""
    why = decoded or document.measured.maybe_text("munge_decode_error") or "no reason given"
    return f"the node refuses the login node's credential: {why}"


def _on_the_login_node(document: Document, reply: Reply) -> str:
    if not document.measured.maybe_text("munge_encoded"):
        why = document.measured.maybe_text("munge_encode_error") or "no reason given"
        return f"the node could not make a credential: {why}"
    if reply.munge is None or reply.munge.decode_exit is None:
        status = reply.munge.decode_status if reply.munge else None
        decode_status = status or "no reason given"
        return f"the node's credential was not tried on the login node: {decode_status}"
    decode_status = reply.munge.decode_status or f"unmunge ended with {reply.munge.decode_exit}"
    if reply.munge.decode_exit == 0 and decode_status.startswith("Success"):
        return ""
    return f"the login node refuses the node's credential: {decode_status}"
