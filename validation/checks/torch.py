"""The node's Python can import torch.

What it checks   The declared Python imports torch. The report shows the version.
Why it matters   A training fails on all of its nodes if one of them has no torch.
What to do       Apply the role validation_runtime to the node again. A missing library: torch was
                 installed without a library of CUDA that it needs; install it again with all
                 packages that it requires. Another error: follow the import's message, such as a
                 full disk or a damaged file.
                 $ ssh {node} "/opt/plumbline/bin/python -c 'import torch'"
"""

from validation.checks.document import Document, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, When
from validation.thresholds import Rules

NAME = "torch"
TIER = Tier.NODE
PAYLOAD = "node"

CAUSES = {
    "A missing library": When(
        r"cannot open shared object file",
        ("ssh {node} '/opt/plumbline/bin/python -m pip check'",),
    ),
    "Another error": When(r"^(?!.*cannot open shared object file)"),
}

_IMPORTED = Threshold("=", "imported", "", "defined", "training needs it")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        version = document.measured.maybe_text("torch")
        error = document.measured.maybe_text("torch_error")
        works = bool(version) and not error
        return Result(
            NAME,
            TIER,
            job.subject,
            _IMPORTED.judge("imported" if works else "missing"),
            "" if works else error or "torch cannot be imported: no reason given",
            Metric("torch", version or "missing"),
            _IMPORTED,
            proof=document.proof,
        )

    return answer(NAME, job, reply, judge)
