"""What the training checks share: losses and parameters held against a single-process reference."""

import math
from dataclasses import dataclass

from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Verdict, worst
from validation.thresholds import Rules

LOSS, PARAMETERS = "loss difference", "parameter difference"


@dataclass(frozen=True, slots=True)
class Training:
    """A training's numbers, every one finite and consistent with the others."""

    loss_difference: float
    parameter_difference: float
    first_loss: float
    last_loss: float
    parameters: int
    samples_per_s: float
    step_time_s: float


def read(job: Job, measured: Fields) -> Training:
    steps = job.config["steps"]
    if measured.whole("steps") != steps:
        raise Unusable(f"{measured.whole('steps')} steps were trained, {steps} were asked for")
    losses, reference = measured.numbers("losses"), measured.numbers("reference_losses")
    if len(losses) != steps or len(reference) != steps:
        raise Unusable(f"{len(losses)} losses and {len(reference)} references for {steps} steps")
    # The payload compares on every rank and reports the largest difference; the losses it lists
    # are compared with one rank's reference. So its figure may be larger, never smaller.
    difference = measured.number("max_loss_difference")
    seen = max(abs(a - b) for a, b in zip(losses, reference, strict=True))
    if difference < seen and not math.isclose(difference, seen, rel_tol=1e-3, abs_tol=1e-12):
        raise Unusable(
            f"the payload claims a loss difference of {difference:.3g}, its losses differ by "
            f"{seen:.3g}"
        )
    if min(losses) == max(losses):
        raise Unusable(f"the loss stayed at {losses[0]} for {steps} steps: nothing was trained")
    training = Training(
        difference,
        measured.number("max_parameter_difference"),
        losses[0],
        losses[-1],
        measured.whole("parameters"),
        measured.number("samples_per_s"),
        measured.number("step_time_s_median"),
    )
    if training.parameter_difference < 0 or training.parameters == 0:
        raise Unusable("no parameters were compared")
    if training.samples_per_s <= 0 or training.step_time_s <= 0:
        raise Unusable("the training took no time")
    return training


def evaluate(check: str, job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        training = read(job, document.measured)
        if check == "pipeline":
            right_schedule(job, document.measured)
        tolerances = rules.common.training[job.backend or ""]
        loss = tolerances.loss.judge(training.loss_difference)
        parameters = tolerances.parameters.judge(training.parameter_difference)
        verdict = worst([loss, parameters])
        # The row shows the worse of the two.
        if parameters is verdict and loss is not verdict:
            value = Metric(PARAMETERS, training.parameter_difference)
            threshold = tolerances.parameters
        else:
            value, threshold = Metric(LOSS, training.loss_difference), tolerances.loss
        message = ""
        if verdict is not Verdict.PASS:
            message = (
                f"{value.name} to the single-process reference is {value.value:.3g}, "
                f"at most {threshold.value:.3g} expected"
            )
        metrics = (
            Metric(LOSS, training.loss_difference),
            Metric(PARAMETERS, training.parameter_difference),
            Metric("first loss", training.first_loss),
            Metric("last loss", training.last_loss),
            Metric("parameters", training.parameters),
            Metric("samples per second", round(training.samples_per_s, 2), "1/s"),
            Metric("step time, median", training.step_time_s, "s"),
        )
        return Result(
            check,
            job.tier,
            job.subject,
            verdict,
            message,
            value,
            threshold,
            metrics,
            document.proof,
        )

    return answer(check, job, reply, judge)


def right_schedule(job: Job, measured: Fields) -> None:
    stages, microbatches = measured.whole("stages"), measured.whole("microbatches")
    if stages != job.ranks:
        raise Unusable(f"the pipeline had {stages} stages, {job.ranks} were asked for")
    if microbatches != job.config["microbatches"]:
        raise Unusable(
            f"{microbatches} microbatches ran, {job.config['microbatches']} were asked for"
        )
    ideal = (stages - 1) / (microbatches + stages - 1)
    claimed = measured.number("bubble_fraction_ideal")
    if not math.isclose(ideal, claimed, rel_tol=1e-3):
        raise Unusable(f"the payload claims a bubble of {claimed}, its schedule has {ideal:.4f}")
