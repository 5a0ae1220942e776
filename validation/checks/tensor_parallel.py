"""Ranks share every layer of a transformer (tensor parallel), with the result of the reference.

What it checks   As ddp, with torch's ColwiseParallel and RowwiseParallel over at most 8 neighbours:
                 each rank's slice of the weights, its share of every sum, the sums, its gradient
                 and parameters, the losses, the speed, and the network that was used.
Why it matters   Models whose layers do not fit one GPU are trained and served so. Every layer waits
                 for a sum over the ranks, so a wrong slice or a slow link spoils each of them.
What to do       The message says where the difference began. A sum is made by the ranks of one row,
                 so only their nodes are concerned.
"""

from validation.checks import sharded, training, transport
from validation.model import Job, Reply, Result, Tier
from validation.thresholds import Rules

NAME = "tensor_parallel"
TIER = Tier.CLUSTER
PAYLOAD = "tensor_parallel"

SHARED = (training, transport)

LONGEST_ROW = 8


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    """As many models as there are rows."""
    rows = training.chains(job.ranks, LONGEST_ROW)
    return sharded.evaluate(NAME, job, reply, rules, [sharded.Model(row, row) for row in rows])
