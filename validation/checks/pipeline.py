"""A model with one stage per rank trains as a pipeline, with the result of the reference.

What it checks   As ddp, with the 1F1B schedule in chains of at most 16 stages: what each stage
                 received and computed, its gradient and parameters, the losses, the network that
                 was used, and what NVML says of the boards.
Why it matters   A pipeline only sends between neighbours. It uses links that collectives avoid, and
                 wrong activations spoil the training.
What to do       The message says where the difference began.
"""

import math

from validation.checks import boards, training, transport
from validation.checks.document import Document, Fields, Unusable
from validation.checks.together import Judged, answer
from validation.model import Job, Reply, Result, Tier
from validation.thresholds import Rules

NAME = "pipeline"
TIER = Tier.CLUSTER
PAYLOAD = "pipeline"

SHARED = (training, transport, boards)

LONGEST_CHAIN = 16


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Judged:
        stages = training.chains(job.ranks, LONGEST_CHAIN)
        training_run = training.read(job, document, training.PIPELINED, stages)
        right_schedule(job, document.measured, max(stages))
        return training.judge(job, training_run, training.PIPELINED, rules)

    return answer(NAME, job, reply, judge, watched=rules)


def right_schedule(job: Job, measured: Fields, stages: int) -> None:
    microbatches = measured.whole("microbatches")
    if microbatches != job.config["microbatches"]:
        raise Unusable(
            f"{microbatches} microbatches ran, {job.config['microbatches']} were asked for"
        )
    ideal = (stages - 1) / (microbatches + stages - 1)
    claimed = measured.number("bubble_fraction_ideal")
    if not math.isclose(ideal, claimed, rel_tol=1e-3):
        raise Unusable(f"the payload claims a bubble of {claimed}, its schedule has {ideal:.4f}")
