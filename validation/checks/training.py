"""What the training checks share: each rank's figures held against a reference by formula.

The payload says for every rank how far it is from the reference, relative to the reference's own
length or movement, in the order in which the figures come about: what the first step gave, then
the parameters after each step. A fault spreads to all ranks from the next exchange on, so it is
the first figure that is off which tells whose fault it is.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from validation.checks.document import Document, Fields, Unusable
from validation.model import Job, Metric, Rank, Result, Threshold, Verdict, worst
from validation.thresholds import Rules, Tolerances

# Figures of the first step, as the payloads call them.
COMPUTED, RECEIVED, EXCHANGED = "computed", "received", "exchanged"

LOSS = "loss difference"
FIRST_STEP = "first-step difference"
PARAMETERS = "parameter difference"

# The reference must move by so many tolerances, or a rank that did nothing would hardly differ.
MOVEMENT = 100

NOT_FINITE = "not finite"


@dataclass(frozen=True, slots=True)
class RankFigures:
    """One rank's differences; inf for what is not a number."""

    rank: Rank
    first_step: dict[str, float]
    parameters: tuple[float, ...]  # after each step
    movement: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Losses of ranks that train one model together, and the reference's."""

    ranks: int
    losses: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def range(self) -> float:
        return max(self.reference) - min(self.reference)

    @property
    def difference(self) -> float:
        apart = max(abs(a - b) for a, b in zip(self.losses, self.reference, strict=True))
        if not apart:
            return 0.0
        return apart / self.range if self.range else math.inf

    @property
    def movement(self) -> float:
        """How far the reference's losses moved, relative to the largest; 0 where all are 0."""
        largest = max(map(abs, self.reference))
        return self.range / largest if largest else 0.0


@dataclass(frozen=True, slots=True)
class Training:
    """A training's numbers, consistent with what was asked for."""

    ranks: tuple[RankFigures, ...]
    curves: tuple[Curve, ...]
    parameters: int
    samples_per_s: float
    step_time_s: float

    @property
    def ends(self) -> tuple[int, ...]:
        """The last rank of each curve's."""
        return tuple(itertools.accumulate((curve.ranks for curve in self.curves), initial=-1))[1:]

    def pair(self, rank: int) -> tuple[Rank, ...]:
        """A rank and the next one."""
        return tuple(item.rank for item in self.ranks if item.rank.rank in (rank, rank + 1))

    @property
    def movement(self) -> float:
        """The least that a reference moved, in parameters or in its losses, relative to itself."""
        losses = [curve.movement for curve in self.curves]
        return min([*losses, *(rank.movement for rank in self.ranks)])

    def figures(self, tolerances: Tolerances) -> list[tuple[Metric, Threshold]]:
        """The largest difference of each kind, and what it is held against."""
        first = max(value for rank in self.ranks for value in rank.first_step.values())
        parameters = max(value for rank in self.ranks for value in rank.parameters)
        loss = max(curve.difference for curve in self.curves)
        return [
            (_metric(FIRST_STEP, first), tolerances.first_step),
            (_metric(PARAMETERS, parameters), tolerances.parameters),
            (_metric(LOSS, loss), tolerances.loss),
        ]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a training first went wrong.

    Known when `ranks` are certainly those that did it; otherwise it is one of them, or what lies
    between them.
    """

    what: str
    ranks: tuple[Rank, ...]
    known: bool

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rank.host for rank in self.ranks))


def read(job: Job, document: Document, figures: Sequence[str], together: Sequence[int]) -> Training:
    """figures: of the first step; together: how many ranks train each model."""
    measured = document.measured
    steps = job.config["steps"]
    if measured.whole("steps") != steps:
        raise Unusable(f"{measured.whole('steps')} steps were trained, {steps} were asked for")
    rows = measured.items("ranks")
    numbers = [row.whole("rank") for row in rows]
    if numbers != list(range(job.ranks)):
        raise Unusable(f"figures of the ranks {numbers[:16]}, asked for 0 to {job.ranks - 1}")
    took_part = {rank.rank: rank for rank in document.proof.ranks}
    ranks = [
        RankFigures(
            took_part[number],
            {name: _difference(row.inner("first_step"), name) for name in figures},
            tuple(_difference(step, "parameters") for step in row.items("steps")),
            row.number("movement"),
        )
        for number, row in zip(numbers, rows, strict=True)
    ]
    if any(len(rank.parameters) != steps for rank in ranks):
        raise Unusable(f"parameters were not compared after each of the {steps} steps")
    curves = [
        Curve(
            curve.whole("ranks"),
            tuple(_number_or_inf(item, "loss") for item in curve.items("steps")),
            tuple(item.number("reference") for item in curve.items("steps")),
        )
        for curve in measured.items("curves")
    ]
    if [curve.ranks for curve in curves] != list(together):
        sizes = [curve.ranks for curve in curves]
        raise Unusable(f"{sizes} ranks trained together, {list(together)} were asked for")
    if any(len(curve.losses) != steps for curve in curves):
        raise Unusable(f"not every model has its losses of the {steps} steps")
    training = Training(
        tuple(ranks),
        tuple(curves),
        measured.whole("parameters"),
        measured.number("samples_per_s"),
        measured.number("step_time_s_median"),
    )
    if training.parameters == 0:
        raise Unusable("no parameters were compared")
    if training.samples_per_s <= 0 or training.step_time_s <= 0:
        raise Unusable("the training took no time")
    return training


def judge(job: Job, check: str, document: Document, training: Training, rules: Rules) -> Result:
    tolerances = rules.common.training[job.backend or ""]
    figures = training.figures(tolerances)
    value, threshold = max(figures, key=lambda figure: _ratio(*figure))
    verdict = worst(limit.judge(metric.value) for metric, limit in figures)
    message, blamed = "", None
    needed = MOVEMENT * float(tolerances.parameters.value)
    if verdict is Verdict.FAIL:
        origin = find_origin(training, tolerances)
        message = f"{value.name} is {_number(value.value)}, at most {threshold.value:.2g} expected"
        if origin is not None:
            message += f"; it began with {origin.what} {_named(origin.ranks)}"
            blamed = origin.hosts if origin.known or len(origin.hosts) == 1 else None
    elif training.movement < needed:
        verdict = Verdict.INCONCLUSIVE
        message = (
            f"the reference moved by {training.movement:.2g} of itself, at least {needed:.2g} is "
            "needed for a comparison"
        )
    elif verdict is Verdict.WARN:
        message = (
            f"{value.name} is {_number(value.value)}, close to the {threshold.value:.2g} allowed"
        )
    return Result(
        check,
        job.tier,
        job.subject,
        verdict,
        message,
        value,
        threshold,
        (
            *(metric for metric, _ in figures),
            Metric("reference's movement", training.movement),
            _metric("first loss", training.curves[0].losses[0]),
            _metric("last loss", training.curves[0].losses[-1]),
            Metric("parameters", training.parameters),
            Metric("samples per second", round(training.samples_per_s, 2), "1/s"),
            Metric("step time, median", training.step_time_s, "s"),
        ),
        document.proof,
        blamed,
    )


def find_origin(training: Training, tolerances: Tolerances) -> Origin | None:
    """The first figure that is off.

    What a rank computed alone, no other can have spoiled. Then comes what the ranks exchanged,
    along the chain in a pipeline: activations forwards, gradients backwards. Last come the
    parameters: after the first step they follow from gradients that were found right, later ones
    from another exchange.
    """
    first, after = float(tolerances.first_step.value), float(tolerances.parameters.value)

    def off(name: str) -> list[Rank]:
        return [item.rank for item in training.ranks if item.first_step.get(name, 0.0) > first]

    if ranks := off(COMPUTED):
        return Origin("what was computed by", tuple(ranks), known=True)
    if ranks := off(RECEIVED):
        return _forwards(training, ranks[0])
    if ranks := off(EXCHANGED):
        if RECEIVED not in training.ranks[0].first_step:
            return Origin("the averaged gradient of", tuple(ranks), known=False)
        return _backwards(training, ranks[-1])
    for step in range(len(training.ranks[0].parameters)):
        if ranks := [item.rank for item in training.ranks if item.parameters[step] > after]:
            what = f"the parameters after step {step + 1} of"
            return Origin(what, tuple(ranks), known=step == 0)
    return None


def _forwards(training: Training, first: Rank) -> Origin:
    """Where a pipeline's activations went wrong; `first` is the first stage that has them wrong."""
    before = first.rank - 1
    if before < 0 or before in training.ends:  # the first of its chain makes its data itself
        return Origin("the data of", (first,), known=True)
    return Origin("what went from", training.pair(before), known=False)


def _backwards(training: Training, last: Rank) -> Origin:
    """Where a pipeline's gradient went wrong; `last` is the last stage that has it wrong."""
    if last.rank in training.ends:  # the loss is its own, nothing came back to it
        return Origin("the gradient of", (last,), known=True)
    return Origin("what came back between", training.pair(last.rank), known=False)


def _named(ranks: Sequence[Rank]) -> str:
    names = [f"rank {rank.rank} on {rank.host}" for rank in ranks[:4]]
    return " and ".join(names) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


def _metric(name: str, value: float) -> Metric:
    return Metric(name, value if math.isfinite(value) else NOT_FINITE)


def _number(value: object) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def _ratio(metric: Metric, threshold: Threshold) -> float:
    return math.inf if isinstance(metric.value, str) else metric.value / float(threshold.value)


def _difference(fields: Fields, name: str) -> float:
    value = _number_or_inf(fields, name)
    if value < 0:
        raise Unusable(f"a difference of {value:.3g} to the reference")
    return value


def _number_or_inf(fields: Fields, name: str) -> float:
    """inf also for what is not a number, or beyond all bounds: it differs from everything."""
    try:
        return fields.number(name)
    except Unusable:
        value = fields.values.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return math.inf if value > 0 else -math.inf
        if fields.text(name) not in ("nan", "inf", "-inf"):
            raise
        return math.inf
