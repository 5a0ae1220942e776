"""Pipelines train a transformer under each schedule that torch has, with the reference's result.

What it checks   As pipeline, one after another: GPipe, 1F1B, and interleaved 1F1B with two stages
                 on each rank, in chains of at most 8 ranks. What each stage received and computed,
                 its gradient and parameters, the losses, the speed, and the network that was used.
Why it matters   Schedules differ in who sends when, and in how much is under way at once. With two
                 stages on a rank the last rank sends to the first one, over a link that no other
                 pipeline uses.
What to do       The message says under which schedule, and where the difference began.
"""

from collections.abc import Sequence
from dataclasses import replace

from validation.checks import training, transport
from validation.checks.document import Document, Unusable
from validation.checks.together import Judged, answer
from validation.model import Job, Reply, Result, Tier, worst
from validation.thresholds import Rules

NAME = "schedules"
TIER = Tier.CLUSTER
PAYLOAD = "schedules"

SHARED = (training, transport)

LONGEST_CHAIN = 8
STAGES = {"gpipe": 1, "1f1b": 1, "interleaved": 2}  # of a rank


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Judged:
        # One rank alone has nothing to interleave.
        asked = [name for name, stages in STAGES.items() if stages == 1 or job.ranks > 1]
        parts = document.measured.items("schedules")
        ran = [part.text("schedule") for part in parts]
        if ran != asked:
            raise Unusable(
                f"{', '.join(ran) or 'no schedule'} ran, {', '.join(asked)} were asked for"
            )
        chains = training.chains(job.ranks, LONGEST_CHAIN)
        results = []
        for name, part in zip(asked, parts, strict=True):
            order = order_of(chains, STAGES[name])
            run = training.read_rows(job, document, part, training.PIPELINED, chains, order)
            result = training.judge(job, run, training.PIPELINED, rules)
            message = f"{name}: {result.message}" if result.message else ""
            results.append(replace(result, message=message))
        verdict = worst(result.verdict for result in results)
        return next(result for result in results if result.verdict is verdict)

    return answer(NAME, job, reply, judge)


def order_of(chains: Sequence[int], stages: int) -> list[int]:
    """The rank of each stage, chain by chain: all first stages, then all second ones."""
    ranks, first = [], 0
    for count in chains:
        ranks += list(range(first, first + count)) * stages
        first += count
    return ranks
