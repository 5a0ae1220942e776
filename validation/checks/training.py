"""What the training checks share: each rank's figures held against a reference by formula.

The payload says for every rank how far it is from the reference, relative to the reference's own
length or movement, in the order in which the figures come about: what the first step gave, then
the parameters after each step. A fault spreads to all ranks from the next exchange on, so it is
the first figure that is off which tells whose fault it is.

What to do       What a rank computed: its node is at fault; take it out of service until GPUs and
                 memory are tested. An average or a sum: what the ranks add up together came out
                 wrong; run all_reduce on these nodes alone (`--nodes`), and repair what it finds.
                 What went between two ranks: the path between their nodes is at fault; run
                 all_reduce on these two alone (`--nodes`), and check the error counters of their
                 network cards and ports. The loss alone: the parameters are right, and the loss
                 that torch reports is not; compare its version with that of other nodes. Slow
                 steps: run the suite network, which finds a slow node or link, and look for what
                 else uses the nodes. Close to the tolerance: the result still counts as right;
                 compare the version of torch and the speed with those of earlier runs. No
                 comparison: no node is at fault; the training of your own suite has too few steps
                 for a difference to show.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from validation.checks import commands
from validation.checks.document import Document, Fields, Unusable
from validation.checks.together import Judged, named, of_each
from validation.model import Job, Metric, Rank, Threshold, Value, Verdict, When, worst
from validation.thresholds import Rules, Speeds, Tolerances

CAUSES = {
    "What a rank computed": When(
        r"what was computed by|the data of|the gradient of (?!the experts)|after step 1 of|"
        r"that were held by",
        (commands.KERNEL,),
    ),
    "An average or a sum": When(
        r"the averaged gradient of|the gradient of the experts|the sums that|after step (?!1 of)",
        (commands.PACKETS, commands.COUNTERS),
    ),
    "What went between two ranks": When(
        r"what went from|what came back between|the tokens that|that went between",
        (commands.PACKETS, commands.COUNTERS),
    ),
    "The loss alone": When(
        r"loss difference is [^;,]*, at most [^;]*(?:$|; (?!it began))", (commands.TORCH,)
    ),
    "Slow steps": When(
        r"(?:step time / reference's|slowest step / median) is [^;]*(?:$|; (?!it began))",
        (commands.BUSY, commands.PACKETS),
    ),
    "Close to the tolerance": When(r"close to the \S+ allowed", (commands.TORCH,)),
    "No comparison": When(r"the reference moved by", (commands.TORCH,)),
}

LOSS = "loss difference"
FIRST_STEP = "first-step difference"
PARAMETERS = "parameter difference"
PER_REFERENCE = "step time / reference's"
SLOWEST = "slowest step / median"

# What a step of the reference, and the median step, count as at least. Below it a pause of a busy
# machine would be taken for a fault.
SHORTEST_REFERENCE_S = 1e-3
SHORTEST_STEP_S = 2e-3

# The reference must move by so many tolerances, or a rank that did nothing would hardly differ.
MOVEMENT = 100

NOT_FINITE = "not finite"

FAIL = Verdict.FAIL


@dataclass(frozen=True, slots=True)
class Gathered:
    """How far the weights of a step were off on one rank: the worst, whose they are, its own."""

    weights: float
    owner: int
    own: float


@dataclass(frozen=True, slots=True)
class RankFigures:
    """One rank's differences, or one stage's; inf for what is not a number."""

    rank: Rank
    first_step: dict[str, float]
    parameters: tuple[float, ...]  # after each step
    movement: float
    gathered: tuple[Gathered, ...] = ()  # for each step, where weights are gathered at all
    partners: Mapping[str, int] | None = None  # by figure, the rank on the other side of the worst


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
    step_times_s: tuple[float, ...]
    reference_step_s: float

    def model(self, of: RankFigures) -> tuple[RankFigures, ...]:
        """All that train one model with this one: in a pipeline its stages in order."""
        ends = list(itertools.accumulate(curve.ranks for curve in self.curves))
        last = next(end for end in ends if of.rank.rank < end)
        first = last - self.curves[ends.index(last)].ranks
        return tuple(item for item in self.ranks if first <= item.rank.rank < last)

    def rank(self, number: int) -> Rank:
        return next(item.rank for item in self.ranks if item.rank.rank == number)

    @property
    def movement(self) -> float:
        """The least that a reference moved, in parameters or in its losses, relative to itself."""
        losses = [curve.movement for curve in self.curves]
        return min([*losses, *(rank.movement for rank in self.ranks)])

    def figures(self, tolerances: Tolerances) -> list[tuple[Metric, Threshold]]:
        """The largest difference of each kind, and what it is held against."""
        first = max(value for rank in self.ranks for value in rank.first_step.values())
        parameters = max(
            value
            for rank in self.ranks
            for value in (
                *rank.parameters,
                *(max(found.weights, found.own) for found in rank.gathered),
            )
        )
        loss = max(curve.difference for curve in self.curves)
        return [
            (Metric(FIRST_STEP, finite(first)), tolerances.first_step),
            (Metric(PARAMETERS, finite(parameters)), tolerances.parameters),
            (Metric(LOSS, finite(loss)), tolerances.loss),
        ]

    def speeds(self, limits: Speeds) -> list[tuple[Metric, Threshold]]:
        """How long steps take: the median one beside the reference's on one core, and the slowest
        but the first, in which libraries still set themselves up, beside the median.
        """
        per_reference = self.step_time_s / max(self.reference_step_s, SHORTEST_REFERENCE_S)
        slowest = max(self.step_times_s[1:]) / max(self.step_time_s, SHORTEST_STEP_S)
        return [
            (Metric(PER_REFERENCE, per_reference), limits.per_reference),
            (Metric(SLOWEST, slowest), limits.slowest),
        ]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a training first went wrong: at `ranks`.

    Known when they are certainly those that did it. Otherwise it is one of them or of `others`, or
    what lies between them.
    """

    what: str
    ranks: tuple[Rank, ...]
    known: bool
    others: tuple[Rank, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rank.host for rank in (*self.ranks, *self.others)))

    @property
    def blamed(self) -> tuple[str, ...] | None:
        return self.hosts if self.known or len(self.hosts) == 1 else None


Locate = Callable[[Training, Sequence[RankFigures]], Origin]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the first step, as the payload calls it, and where a fault is if it is off on
    these ranks and all figures before it are right.

    partner  the payload's word for the rank on the other side of what is the worst
    """

    name: str
    locate: Locate
    partner: str | None = None


def own(what: str) -> Locate:
    """What a rank did alone: no other can have spoiled it."""
    return lambda training, off: Origin(what, tuple(item.rank for item in off), known=True)


def among(what: str) -> Locate:
    """What all ranks got from an exchange."""
    return lambda training, off: Origin(what, tuple(item.rank for item in off), known=False)


def within_model(what: str) -> Locate:
    """What a rank got from all that train its model."""

    def locate(training: Training, off: Sequence[RankFigures]) -> Origin:
        others = tuple(item.rank for first in off[:1] for item in training.model(first))
        return Origin(what, tuple(item.rank for item in off), False, others)

    return locate


def between(what: str, figure: str) -> Locate:
    """What one rank got from another one."""

    def locate(training: Training, off: Sequence[RankFigures]) -> Origin:
        worst = max(off, key=lambda item: item.first_step[figure])
        partner = (worst.partners or {})[figure]
        return Origin(what, tuple(dict.fromkeys((training.rank(partner), worst.rank))), False)

    return locate


def read(
    job: Job,
    document: Document,
    figures: Sequence[Figure],
    together: Sequence[int],
    *,
    gathers: bool = False,
) -> Training:
    """together: how many ranks train each model; gathers: whether weights are gathered."""
    return read_rows(
        job, document, document.measured, figures, together, range(job.ranks), gathers=gathers
    )


def read_rows(
    job: Job,
    document: Document,
    measured: Fields,
    figures: Sequence[Figure],
    together: Sequence[int],
    order: Sequence[int],
    *,
    gathers: bool = False,
) -> Training:
    """As `read`, of a part of the answer; order: the rank of each row."""
    steps = job.config["steps"]
    if measured.whole("steps") != steps:
        raise Unusable(f"{measured.whole('steps')} steps were trained, {steps} were asked for")
    rows = measured.items("ranks")
    ranks = [
        RankFigures(
            rank,
            {figure.name: _difference(row.inner("first_step"), figure.name) for figure in figures},
            tuple(_difference(step, "parameters") for step in row.items("steps")),
            row.number("movement"),
            tuple(_gathered(job, step) for step in row.items("steps")) if gathers else (),
            {
                figure.name: _rank(job, row.inner("first_step"), figure.partner)
                for figure in figures
                if figure.partner is not None
            },
        )
        for rank, row in of_each(document, rows, order)
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
        tuple(measured.numbers("step_times_s")),
        measured.number("reference_step_s"),
    )
    if training.parameters == 0:
        raise Unusable("no parameters were compared")
    if training.samples_per_s <= 0 or training.step_time_s <= 0:
        raise Unusable("the training took no time")
    if len(training.step_times_s) != steps or min(training.step_times_s) <= 0:
        raise Unusable(f"not each of the {steps} steps took its time")
    if not math.isclose(statistics.median(training.step_times_s), training.step_time_s):
        raise Unusable("the median of the steps' times is another than the payload says")
    if training.reference_step_s <= 0:
        raise Unusable("the reference took no time")
    return training


def _rank(job: Job, fields: Fields, name: str) -> int:
    number = fields.whole(name)
    if number >= job.ranks:
        raise Unusable(f"{name} is rank {number}, there are {job.ranks}")
    return number


def _gathered(job: Job, step: Fields) -> Gathered:
    return Gathered(
        _difference(step, "weights"), _rank(job, step, "owner"), _difference(step, "own")
    )


def judge(job: Job, training: Training, figures: Sequence[Figure], rules: Rules) -> Judged:
    """figures: of the first step, in the order in which they come about."""
    tolerances = rules.common.training[job.backend or ""]
    speeds = training.speeds(rules.common.training_speed[job.backend or ""])
    differences = training.figures(tolerances)
    # What is as fast as it should be is told by its differences.
    judged = differences + [each for each in speeds if each[1].judge(each[0].value) is FAIL]
    value, threshold = max(judged, key=lambda figure: ratio(*figure))
    verdict = worst(limit.judge(metric.value) for metric, limit in judged)
    message, blamed = "", None
    if verdict is Verdict.FAIL:
        origin = find_origin(training, figures, tolerances)
        message = f"{value.name} is {_number(value.value)}, at most {threshold.value:.2g} expected"
        if origin is not None:
            message += f"; it began with {origin.what} {named(origin.ranks)}"
            blamed = origin.blamed
    elif still := unmoved(training.movement, tolerances):
        verdict, message = Verdict.INCONCLUSIVE, still
    elif verdict is Verdict.WARN:
        message = (
            f"{value.name} is {_number(value.value)}, close to the {threshold.value:.2g} allowed"
        )
    return Judged(
        verdict,
        message,
        value,
        threshold,
        blamed,
        (
            *(metric for metric, _ in differences),
            Metric("reference's movement", training.movement),
            Metric("first loss", finite(training.curves[0].losses[0])),
            Metric("last loss", finite(training.curves[0].losses[-1])),
            Metric("parameters", training.parameters),
            Metric("samples per second", round(training.samples_per_s, 2), "1/s"),
            Metric("step time, median", training.step_time_s, "s"),
            *(Metric(metric.name, _rounded(metric.value)) for metric, _ in speeds),
        ),
    )


def unmoved(movement: float, tolerances: Tolerances) -> str:
    """Why nothing can be compared with a reference that moved too little; nothing where it can."""
    needed = MOVEMENT * float(tolerances.parameters.value)
    if movement >= needed:
        return ""
    return (
        f"the reference moved by {movement:.2g} of itself, at least {needed:.2g} is needed for a "
        "comparison"
    )


def find_origin(
    training: Training, figures: Sequence[Figure], tolerances: Tolerances
) -> Origin | None:
    """The first figure that is off, in the order in which they come about.

    First the weights that were gathered for the first step, then the first step's own figures. The
    parameters after it follow from gradients that were found right; then come the next step's
    weights, and parameters that follow from another exchange.
    """
    first, after = float(tolerances.first_step.value), float(tolerances.parameters.value)
    if origin := _gathering(training, 0, after):
        return origin
    for figure in figures:
        if off := [item for item in training.ranks if item.first_step[figure.name] > first]:
            return figure.locate(training, off)
    for step in range(len(training.ranks[0].parameters)):
        if step and (origin := _gathering(training, step, after)):
            return origin
        if ranks := [item.rank for item in training.ranks if item.parameters[step] > after]:
            what = f"the parameters after step {step + 1} of"
            return Origin(what, tuple(dict.fromkeys(ranks)), known=step == 0)
    return None


def _gathering(training: Training, step: int, most: float) -> Origin | None:
    """Where the weights of a step went wrong, if they did.

    A rank that has its own shard wrong, after a step in which it was right, spoiled it itself, and
    the others got it from there.
    """
    gathering = [item for item in training.ranks if item.gathered]
    if spoiled := tuple(item.rank for item in gathering if item.gathered[step].own > most):
        what = f"the weights for step {step + 1} that were held by"
        return Origin(what, spoiled, known=True)
    off = [item for item in gathering if item.gathered[step].weights > most]
    if not off:
        return None
    worst = max(off, key=lambda item: item.gathered[step].weights)
    pair = dict.fromkeys((training.rank(worst.gathered[step].owner), worst.rank))
    what = f"the weights for step {step + 1} that went between"
    return Origin(what, tuple(pair), False, tuple(item.rank for item in off))


def forwards(training: Training, off: Sequence[RankFigures]) -> Origin:
    """Where a pipeline's activations went wrong: the first stage that has them wrong."""
    stages = training.model(off[0])
    place = stages.index(off[0])
    if place == 0:  # the first stage makes its data itself
        return Origin("the data of", (off[0].rank,), known=True)
    return Origin("what went from", _pair(stages[place - 1], off[0]), known=False)


def backwards(training: Training, off: Sequence[RankFigures]) -> Origin:
    """Where a pipeline's gradient went wrong: the last stage that has it wrong."""
    stages = training.model(off[-1])
    place = stages.index(off[-1])
    if place == len(stages) - 1:  # the loss is its own, nothing came back to it
        return Origin("the gradient of", (off[-1].rank,), known=True)
    return Origin("what came back between", _pair(off[-1], stages[place + 1]), known=False)


def _pair(*stages: RankFigures) -> tuple[Rank, ...]:
    return tuple(dict.fromkeys(stage.rank for stage in stages))


def chains(ranks: int, longest: int) -> list[int]:
    """How many ranks each chain has: as few chains as possible, as even as possible."""
    count = math.ceil(ranks / longest)
    return [len(range(chain, ranks, count)) for chain in range(count)]


# The figures that several trainings have.
COMPUTED = Figure("computed", own("what was computed by"))
PIPELINED = (
    COMPUTED,
    Figure("received", forwards),
    Figure("exchanged", backwards),
)


def finite(value: float) -> float | str:
    return value if math.isfinite(value) else NOT_FINITE


def _rounded(value: Value) -> Value:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _number(value: object) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def ratio(metric: Metric, threshold: Threshold) -> float:
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
