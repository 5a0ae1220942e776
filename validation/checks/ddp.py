"""All ranks train one model data-parallel, and it learns what one process would.

What it checks   losses of every step and the final parameters equal a single-process reference
                 within the tolerance; every number is finite; exactly the asked ranks took part
Why it matters   it is what users run: a training that ends without error can still be wrong
What to do       If all_reduce failed too, mend that first. If only this fails, compare versions of
                 torch and NCCL between the nodes (the report's proof lists them), then repeat with
                 fewer nodes (`--nodes`) until the failing one is found.
"""

from validation.checks import training
from validation.model import Job, Reply, Result, Tier
from validation.thresholds import Rules

NAME = "ddp"
TIER = Tier.CLUSTER
PAYLOAD = "ddp"


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    return training.evaluate(NAME, job, reply, rules)
