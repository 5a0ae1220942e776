"""All ranks train one transformer fully sharded (FSDP2), with the result of the reference.

What it checks   As ddp, with torch's fully_shard: the weights that each rank gathers for each step,
                 what it computes with them, its shard of the averaged gradient and of the
                 parameters, the losses, the speed, and the network that was used.
Why it matters   Large models are trained so. Weights travel in every step, not only gradients, by
                 all_gather and reduce_scatter, which all_reduce and ddp do not try.
What to do       The message says where the difference began. Weights that are right where they are
                 held and wrong where they were gathered went wrong between two ranks.
"""

from validation.checks import sharded, training, transport
from validation.model import Job, Reply, Result, Tier
from validation.thresholds import Rules

NAME = "fsdp"
TIER = Tier.CLUSTER
PAYLOAD = "fsdp"

SHARED = (training, transport)


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    """One model, with a row for each rank."""
    return sharded.evaluate(NAME, job, reply, rules, [sharded.Model(job.ranks, tensor=1)])
