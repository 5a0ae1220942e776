"""A mesh of data × tensor ranks trains one transformer, with the result of the reference.

What it checks   As fsdp and tensor_parallel together: torch's fully_shard over the columns of a
                 two-dimensional mesh, tensor parallel over its rows, of at most 8 ranks of one
                 node. The message says how many rows and columns there were. A number of ranks that
                 cannot be divided so has rows of one rank.
Why it matters   Large trainings are laid out so. Each rank belongs to several groups at once, and
                 collectives of different groups are under way side by side.
What to do       Repair first what fsdp and tensor_parallel report. The message says where the
                 difference began.
"""

import math
from dataclasses import replace

from validation.checks import sharded, training, transport
from validation.model import Job, Metric, Reply, Result, Tier
from validation.thresholds import Rules

NAME = "mesh"
TIER = Tier.CLUSTER
PAYLOAD = "mesh"

SHARED = (training, transport)

LONGEST_ROW = 8


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    model = sharded.Model(job.ranks, columns(job))
    result = sharded.evaluate(NAME, job, reply, rules, [model])
    shape = Metric("mesh", f"{model.data} data × {model.tensor} tensor")
    return replace(result, metrics=(*result.metrics, shape)) if result.metrics else result


def columns(job: Job) -> int:
    """How many ranks share a layer: what divides a node's ranks evenly, no more than rows."""
    evenly = job.ranks if job.ranks_per_node == 1 else job.ranks_per_node
    most = min(LONGEST_ROW, math.isqrt(job.ranks))
    return max(count for count in range(1, most + 1) if evenly % count == 0 == job.ranks % count)
