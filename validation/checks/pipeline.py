"""A model cut into a stage per rank trains as a pipeline and learns what one process would.

What it checks   as ddp does, with the 1F1B schedule; stages and microbatches are those asked for
Why it matters   pipelines send between neighbours only: a link that collectives route around is
                 used here, and activations that arrive wrong show in the loss
What to do       If all_reduce failed too, mend that first. If only this fails, the point-to-point
                 path between two ranks is at fault: the job's stderr names the rank that waited.
"""

from validation.checks import training
from validation.model import Job, Reply, Result, Tier
from validation.thresholds import Rules

NAME = "pipeline"
TIER = Tier.CLUSTER
PAYLOAD = "pipeline"


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    return training.evaluate(NAME, job, reply, rules)
