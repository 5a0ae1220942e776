"""All ranks train one model data-parallel, and it learns what the formula says.

What it checks   the first step's gradients, each rank's own and the averaged one, the parameters
                 after each step and the losses equal a reference in float64 within the tolerance;
                 the reference moves far enough to tell; exactly the asked ranks took part, with one
                 version of torch and NCCL, over the declared fabric (NCCL's own log)
Why it matters   it is what users run: a training that ends without error can still be wrong
What to do       The message says where it began. What one rank computed by itself is the fault of
                 its node: take it out of service until GPUs and memory are tested. An average that
                 is wrong is all_reduce's business: mend that first. Different versions of torch or
                 NCCL: apply the role validation_runtime to the nodes that are named. Over sockets
                 where InfiniBand is declared: see all_reduce.
"""

from validation.checks import training, transport
from validation.checks.document import Document, answer
from validation.model import Job, Reply, Result, Tier
from validation.thresholds import Rules

NAME = "ddp"
TIER = Tier.CLUSTER
PAYLOAD = "ddp"

FIGURES = (training.COMPUTED, training.EXCHANGED)


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        found = training.read(job, document, FIGURES, [job.ranks])
        result = training.judge(job, NAME, document, found, rules)
        return transport.held_against(result, job, document)

    return answer(NAME, job, reply, judge)
