"""Experts that are spread over ranks train in a transformer, with the result of the reference.

What it checks   As ddp, for a mixture of experts over at most 8 neighbours: the tokens that come to
                 each rank's experts by all_to_all, what these make of them, what comes back, the
                 averaged gradient of what all ranks have and that of each rank's experts, the
                 losses, the speed, and the network that was used.
Why it matters   Mixtures of experts send every token across the network twice a layer, in parts of
                 unequal length. No other training tries all_to_all, and tokens that come to the
                 wrong expert raise no error.
What to do       The message says where the difference began. A rank that has another's experts has
                 computed wrongly.
"""

from validation.checks import training, transport
from validation.checks.document import Document
from validation.checks.together import Judged, answer
from validation.checks.training import Figure
from validation.model import Job, Reply, Result, Tier
from validation.thresholds import Rules

NAME = "expert_parallel"
TIER = Tier.CLUSTER
PAYLOAD = "expert_parallel"

SHARED = (training, transport)

LONGEST_ROW = 8
FIGURES = (
    training.COMPUTED,
    Figure("received", training.between("the tokens that went from", "received"), "received_from"),
    Figure("returned", training.between("the tokens that came from", "returned"), "returned_from"),
    Figure("exchanged", training.within_model("the averaged gradient of")),
    Figure("experts", training.within_model("the gradient of the experts of")),
)


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Judged:
        rows = training.chains(job.ranks, LONGEST_ROW)
        training_run = training.read(job, document, FIGURES, rows)
        return training.judge(job, training_run, FIGURES, rules)

    return answer(NAME, job, reply, judge)
