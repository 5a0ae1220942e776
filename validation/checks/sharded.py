"""What fsdp, tensor_parallel and mesh share: a transformer over rows and columns of ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from validation.checks import training
from validation.checks.document import Document, Unusable
from validation.checks.together import Judged, answer
from validation.checks.training import Figure
from validation.model import Job, Reply, Result
from validation.thresholds import Rules

FIGURES = (
    training.COMPUTED,
    Figure("received", training.within_model("the sums that came to")),
    Figure("exchanged", training.within_model("the averaged gradient of")),
)


@dataclass(frozen=True, slots=True)
class Model:
    """So many ranks train one model, in rows of `tensor`."""

    ranks: int
    tensor: int

    @property
    def data(self) -> int:
        return self.ranks // self.tensor


def evaluate(check: str, job: Job, reply: Reply, rules: Rules, models: Sequence[Model]) -> Result:
    def judge(document: Document) -> Judged:
        together = [model.ranks for model in models]
        training_run = training.read(job, document, FIGURES, together, gathers=True)
        for name, asked in (
            ("rows", [model.data for model in models]),
            ("columns", [model.tensor for model in models]),
        ):
            if (had := list(document.measured.numbers(name))) != asked:
                stood, wanted = (", ".join(f"{n:g}" for n in counts) for counts in (had, asked))
                raise Unusable(f"the ranks stood in {stood} {name}, {wanted} were asked for")
        return training.judge(job, training_run, FIGURES, rules)

    return answer(check, job, reply, judge)
