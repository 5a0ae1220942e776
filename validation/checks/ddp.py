"""All ranks train one model data-parallel, with the result of the reference.

What it checks   The gradients of the first step (each rank's own and the average), the parameters
                 after each step and the losses equal a reference in float64 within the tolerance.
                 The reference changes enough for a comparison. A step takes no more than a generous
                 multiple of the reference's, and no step a multiple of the others. Exactly the
                 requested ranks took part, with one version of torch and NCCL, over the declared
                 fabric (from NCCL's own log). Meanwhile NVML is asked of the boards: none is held
                 back by heat or power supply, and none counts new errors.
Why it matters   Users run such trainings, and a training that ends without error can still be
                 wrong.
What to do       The message says where the difference began.
"""

from validation.checks import boards, training, transport
from validation.checks.document import Document
from validation.checks.together import Judged, answer
from validation.model import Job, Reply, Result, Tier
from validation.thresholds import Rules

NAME = "ddp"
TIER = Tier.CLUSTER
PAYLOAD = "ddp"

SHARED = (training, transport, boards)

FIGURES = (
    training.COMPUTED,
    training.Figure("exchanged", training.among("the averaged gradient of")),
)


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Judged:
        training_run = training.read(job, document, FIGURES, [job.ranks])
        return training.judge(job, training_run, FIGURES, rules)

    return answer(NAME, job, reply, judge, watched=rules)
