"""What the checks of a killed and resumed training share: a curve held against the reference.

Where the references of all ranks are the same bit by bit, their arithmetic is, and then so must be
the training: nothing in it rounds in another order (payloads/checkpoint.py). Elsewhere the
tolerances of other trainings hold.

What to do       Other bits: the training went another way than the same training without an end;
                 take a named node out of service until its GPUs and memory are tested, and run ddp
                 where none is named. Beyond the tolerance: as for ddp, which says where the
                 difference begins; run it on the same nodes. No comparison: no node is at fault;
                 the training of your own suite has too few steps for a difference to show.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from validation.checks import commands
from validation.checks.document import Document, Fields, Unusable
from validation.checks.together import Judged, named, of_each
from validation.checks.training import finite, ratio, unmoved
from validation.model import Job, Metric, Rank, Threshold, Verdict, When
from validation.thresholds import Rules

CAUSES = {
    "Other bits": When(
        r"the loss differs from|losses or parameters differ", (commands.KERNEL, commands.TORCH)
    ),
    "Beyond the tolerance": When(
        r"(?:loss|parameter) difference is", (commands.KERNEL, commands.TORCH)
    ),
    "No comparison": When(r"the reference moved by", (commands.TORCH,)),
}

_EXACT = Threshold(
    "=", 0, "steps and ranks", "defined", "the references of all ranks are equal bit by bit"
)
_DIGEST = 64  # hexadecimal digits of a sha256


@dataclass(frozen=True, slots=True)
class Trained:
    """One rank's losses and whole parameters beside its own reference's.

    equal        whether both are, bit by bit
    difference   of the parameters, relative to what the reference moved them by
    """

    rank: Rank
    reference: str
    equal: bool
    difference: float  # inf for what is not a number


@dataclass(frozen=True, slots=True)
class Restart:
    """A part of a training, consistent with what was asked for."""

    first: int
    losses: tuple[float, ...]
    reference: tuple[float, ...]
    range: float
    movement: float
    ranks: tuple[Trained, ...]
    parameters: int
    others: tuple[str, ...]  # the references of ranks of the job before

    @property
    def alike(self) -> bool:
        """Whether all ranks compute the same bits."""
        return len({*self.others, *(rank.reference for rank in self.ranks)}) == 1

    @property
    def steps_apart(self) -> list[int]:
        pairs = zip(self.losses, self.reference, strict=True)
        return [self.first + number + 1 for number, (a, b) in enumerate(pairs) if a != b]

    @property
    def ranks_apart(self) -> list[Trained]:
        return [rank for rank in self.ranks if not rank.equal]

    @property
    def loss_difference(self) -> float:
        apart = max(abs(a - b) for a, b in zip(self.losses, self.reference, strict=True))
        return apart / self.range if self.range else (math.inf if apart else 0.0)


def read(job: Job, document: Document, first: int, last: int) -> Restart:
    """The part of the training from the step `first` to `last`."""
    measured = document.measured
    if measured.whole("steps") != job.config["steps"]:
        raise Unusable(f"trained for {measured.whole('steps')} steps, not {job.config['steps']}")
    if measured.whole("first") != first:
        raise Unusable(f"begins with step {measured.whole('first') + 1}, not {first + 1}")
    losses = tuple(number_or_inf(value) for value in _list(measured, "losses"))
    reference = measured.numbers("reference")
    if not len(losses) == len(reference) == last - first:
        raise Unusable(f"has {len(losses)} losses of the {last - first} steps")
    rows = measured.items("ranks")
    each = of_each(document, rows, range(job.ranks))
    ranks = tuple(_trained(row, rank) for rank, row in each)
    movement = min(row.number("movement") for row in rows)
    loss_range, parameters = measured.number("range"), measured.whole("parameters")
    if parameters == 0 or loss_range < 0:
        raise Unusable("nothing was trained")
    others = tuple(_sha256(text) for text in _list(measured, "references_before"))
    if first and not others:
        raise Unusable("nothing is said of the references of the ranks before")
    return Restart(first, losses, reference, loss_range, movement, ranks, parameters, others)


def _trained(row: Fields, rank: Rank) -> Trained:
    reference = _sha256(row.text("reference"))
    apart = difference(row.values.get("difference"))
    equal = row.flag("equal")
    if equal and apart:
        raise Unusable(f"rank {rank.rank} is equal to its reference and differs by {apart}")
    return Trained(rank, reference, equal, apart)


def _sha256(value: object) -> str:
    if not isinstance(value, str) or len(value) != _DIGEST:
        raise Unusable(f"no sha256: {str(value)[:70]!r}")
    return value


def _list(fields: Fields, name: str) -> list[object]:
    values = fields.values.get(name)
    if not isinstance(values, list):
        raise Unusable(f"{name} is no list")
    return values


def difference(value: object) -> float:
    number = number_or_inf(value)
    if number < 0:
        raise Unusable(f"a difference of {number:.3g} to the reference")
    return number


def number_or_inf(value: object) -> float:
    """inf for the texts that payloads write for what is not finite. Raises Unusable for others."""
    if value in ("nan", "inf", "-inf"):
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unusable(f"{value!r} is no number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def judge(job: Job, part: Restart, rules: Rules, more: Sequence[Metric]) -> Judged:
    """more: metrics of the check's own."""
    tolerances = rules.common.training[job.backend or ""]
    apart = max(rank.difference for rank in part.ranks)
    metrics = (
        Metric("loss difference", finite(part.loss_difference)),
        Metric("parameter difference", finite(apart)),
        Metric("reference's movement", part.movement),
        Metric("first loss", finite(part.losses[0])),
        Metric("last loss", finite(part.losses[-1])),
        Metric("parameters", part.parameters),
        Metric("ranks compute", "alike" if part.alike else "not alike"),
        *more,
    )
    value, threshold, message = _held(part, apart, tolerances.parameters, tolerances.loss)
    verdict = threshold.judge(value.value)
    still = unmoved(part.movement if part.range > 0 else 0.0, tolerances)
    if verdict is not Verdict.FAIL and still:
        verdict, message = Verdict.INCONCLUSIVE, still
    blamed = _blamed(part) if verdict is Verdict.FAIL else None
    shown = message if verdict is not Verdict.PASS else ""
    return Judged(verdict, shown, value, threshold, blamed, metrics)


def _held(
    part: Restart, apart: float, parameters: Threshold, loss: Threshold
) -> tuple[Metric, Threshold, str]:
    if part.alike:
        steps, ranks = part.steps_apart, part.ranks_apart
        value = Metric("unequal", len(steps) + len(ranks), "steps and ranks")
        parts = []
        if steps:
            parts.append(f"the loss differs from the reference's from step {steps[0]} on")
        if ranks:
            those = named([item.rank for item in ranks])
            parts.append(f"losses or parameters differ on {those}")
        return value, _EXACT, "; ".join(parts)
    figures = [
        (Metric("loss difference", finite(part.loss_difference)), loss),
        (Metric("parameter difference", finite(apart)), parameters),
    ]
    value, limit = max(figures, key=lambda figure: ratio(*figure))
    number = value.value if isinstance(value.value, str) else f"{value.value:.2g}"
    return value, limit, f"{value.name} is {number}, at most {limit.value:.2g} expected"


def _blamed(part: Restart) -> tuple[str, ...] | None:
    """The node whose ranks alone are wrong; None where it is one of several."""
    hosts = {rank.rank.host for rank in part.ranks}
    wrong = {rank.rank.host for rank in part.ranks_apart}
    if part.alike and len(wrong) == 1 < len(hosts) and not part.steps_apart:
        return tuple(wrong)
    return None
