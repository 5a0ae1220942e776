"""What the checks of payload `compute` share: the GPUs that answered, times, and findings.

A GPU is named by its number on the node, as `nvidia-smi` counts. Figures of a CPU that ran in the
place of a GPU are looked at for what is right, and never for speed.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cluster.declaration import Gpus
from cluster.errors import CannotRun
from cluster.text import printable
from validation.checks.document import Document, Fields, Unusable
from validation.model import Job, Metric, Result, Sample, Threshold, Tier, Verdict, worst
from validation.payloads import compute, config
from validation.thresholds import Rules
from validation.thresholds.gpu import GBS, NO_RULES, GpuRules

PAYLOAD = "compute"

_NAMED = 3  # findings that a message spells out


@dataclass(frozen=True, slots=True)
class GpuAnswer:
    """One GPU. `problem` says why it did not start; then there are no figures of it."""

    index: int
    problem: str | None
    name: str
    identity: str | None  # its UUID or place on the bus, of a real one
    multiprocessors: int
    l2_bytes: int
    torch: str
    cuda: str | None
    row: Fields

    @property
    def is_instance(self) -> bool:
        """Whether it is one of MIG."""
        return (self.identity or "").startswith("MIG-")

    @property
    def title(self) -> str:
        return f"MIG instance {self.index}" if self.is_instance else f"GPU {self.index}"

    def rows(self, name: str, key: str, expected: Sequence[str]) -> list[tuple[str, Fields]]:
        """The measurements of one kind. Raises Unusable unless they are those that were asked."""
        rows = self.row.items(name)
        measured = [row.text(key) for row in rows]
        if measured != list(expected):
            raise Unusable(f"{self.title} measured {measured}, asked for {list(expected)}")
        return list(zip(measured, rows, strict=True))


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What was asked and who answered. `real` is False for a CPU in the place of GPUs."""

    config: compute.Config
    real: bool
    gpus: tuple[GpuAnswer, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be."""

    verdict: Verdict
    message: str
    value: Metric
    threshold: Threshold | None


@dataclass
class Report:
    """What a check collects until it has seen all GPUs.

    judged     figures that were held against a threshold, and that threshold
    reached    whose speed was among them
    unjudged   speeds of real GPUs that nothing is recorded for, and whose they are
    samples    the same for who wants to record something
    notes      what is to be told although it is no fault
    """

    findings: list[Finding] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    judged: list[tuple[Metric, Threshold]] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)
    unjudged: list[tuple[str, Metric]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fail(self, message: str, value: Metric, threshold: Threshold | None = None) -> None:
        self.findings.append(Finding(Verdict.FAIL, message, value, threshold))

    def failed_to_measure(self, what: str, problem: str) -> None:
        """A measurement that gave no figure."""
        limit = Threshold("=", "measured", "", "defined", "what was asked has to be measured")
        self.fail(f"{what}: {problem}", Metric(what, "not measured"), limit)

    def exact(self, what: str, wrong: int, of: str) -> None:
        """Data that must have arrived as they were sent."""
        value = Metric(f"{what}, wrong {of}", wrong)
        limit = Threshold("=", 0, "", "defined", "every one of them is looked at")
        self.judged.append((value, limit))
        if wrong:
            self.fail(f"{what}: {wrong} {of} are wrong", value, limit)

    def speed(
        self,
        who: str,
        value: Metric,
        peaks: Iterable[Threshold | None],
        threshold: Threshold | None,
        sample: Sample | None = None,
    ) -> None:
        """A real GPU's speed against what it cannot exceed and what it must reach.

        One threshold is enough to judge somebody by: not every figure has been recorded for every
        model. Those that have none are named, see `not_judged`.
        """
        self.metrics.append(value)
        for peak in peaks:
            if peak is not None and peak.judge(value.value) is Verdict.FAIL:
                self.fail(
                    f"{value.name} is {value.value} {value.unit}, more than the hardware can "
                    f"({peak.value:g}): the measurement is wrong",
                    value,
                    peak,
                )
                return
        if threshold is None:
            self.unjudged.append((who, value))
            self.samples += [sample] if sample else []
            return
        self.judged.append((value, threshold))
        self.reached.add(who)
        verdict = threshold.judge(value.value)
        figure = f"{value.name} is {value.value} {value.unit}"
        if verdict is Verdict.FAIL:
            self.fail(f"{figure}, at least {threshold.value:g} expected", value, threshold)
        elif verdict is Verdict.WARN:
            message = f"{figure}, close to the threshold; healthy: ≥ {threshold.warn:g}"
            self.findings.append(Finding(verdict, message, value, threshold))

    def not_judged(self) -> str:
        """Which figures had no threshold beside others that had, and the notes."""
        kinds = dict.fromkeys(value.name.removeprefix(f"{who}, ") for who, value in self.unjudged)
        notes = [f"not judged: {', '.join(kinds)}"] if kinds else []
        return "; ".join([*notes, *self.notes])

    def result(self, check: str, job: Job, document: Document, rules: Rules) -> Result:
        verdict = worst([finding.verdict for finding in self.findings] or [Verdict.PASS])
        unknown = [value for who, value in self.unjudged if who not in self.reached]
        value: Metric | None
        threshold: Threshold | None
        if verdict.green and (unknown or not self.judged):
            verdict = Verdict.INCONCLUSIVE
            value, threshold = (unknown[0] if unknown else None), None
            message = nothing_to_judge_by(rules, unknown)
        elif verdict is Verdict.PASS:
            (value, threshold), message = min(self.judged, key=_room), self.not_judged()
        else:
            of_it = [finding for finding in self.findings if finding.verdict is verdict]
            told = self.not_judged() if verdict.green else "; ".join(self.notes)
            value, threshold = of_it[0].value, of_it[0].threshold
            message = spelled_out([finding.message for finding in of_it])
            message += f"; {told}" if told else ""
        return Result(
            check,
            Tier.NODE,
            job.subject,
            verdict,
            printable(message, 300),
            value,
            threshold,
            tuple(self.metrics),
            document.proof,
            unjudged=tuple(self.samples),
        )


def read(job: Job, document: Document) -> NodeAnswer:
    """Who answered. Raises Unusable unless it is each GPU of the node, once."""
    try:
        settings = config.load(compute.Config, json.dumps(dict(job.config)))
    except CannotRun as problem:
        raise Unusable(f"it could not be measured: {problem}") from problem
    declared = job.nodes[0].gpus
    device = document.measured.text("device")
    if device != settings.device:
        raise Unusable(f"measured {device!r}, {settings.device!r} was asked for")
    if declared.real and device != "cuda":
        raise Unusable("computed on a CPU, although real GPUs are declared")
    expected = declared.devices if declared.real else settings.gpus or 1
    return NodeAnswer(settings, device == "cuda", answered(document, device, expected, declared))


def answered(
    document: Document, device: str, expected: int, declared: Gpus
) -> tuple[GpuAnswer, ...]:
    """The GPUs of an answer. Raises Unusable unless each of the expected ones is there, once."""
    gpus = tuple(_gpu(row, device) for row in document.measured.items("gpus"))
    numbers = [gpu.index for gpu in gpus]
    if numbers != list(range(expected)):
        raise Unusable(f"figures of {len(numbers)} GPUs ({numbers[:16]}), {expected} are declared")
    known = [gpu.identity for gpu in gpus if gpu.identity is not None]
    if len(set(known)) != len(known):
        raise Unusable("the same GPU was measured twice in place of another")
    _whole_or_cut(gpus, declared)
    return gpus


def _whole_or_cut(gpus: Sequence[GpuAnswer], declared: Gpus) -> None:
    """Raises Unusable unless whole GPUs computed, or the declared instances of MIG."""
    working = [gpu for gpu in gpus if gpu.identity is not None]
    wanted = "an instance of MIG" if declared.mig else "a whole GPU"
    for gpu in working:
        if gpu.is_instance != bool(declared.mig):
            raise Unusable(f"GPU {gpu.index} is {gpu.identity}, {wanted} is declared")
    if declared.mig:
        counts = Counter(gpu.name.rpartition(" MIG ")[2] for gpu in working)
        for profile, count in counts.items():
            if count > (most := declared.profiles.get(profile, 0)):
                raise Unusable(f"{count} instances of {profile} computed, {most} are declared")


def _gpu(row: Fields, device: str) -> GpuAnswer:
    index, start = row.whole("index"), row.inner("start")
    problem = start.maybe_text("error")
    if problem is not None:
        return GpuAnswer(index, problem or "no reason", "", None, 0, 0, "", None, row)
    identity, multiprocessors, l2_bytes = None, 0, 0
    if device == "cuda":
        identity = start.maybe_text("uuid") or start.maybe_text("bus")
        if identity is None:
            raise Unusable(f"torch {start.text('torch')} does not say which GPU {index} is")
        multiprocessors = start.whole("multiprocessors")
        l2_bytes = start.whole("l2_bytes") if start.has("l2_bytes") else 0
    return GpuAnswer(
        index,
        None,
        start.text("name"),
        identity,
        multiprocessors,
        l2_bytes,
        start.text("torch"),
        start.maybe_text("cuda"),
        row,
    )


def started(report: Report, node: NodeAnswer) -> list[GpuAnswer]:
    """The GPUs that have figures; the others fail, and `cuda` says why."""
    if lost := [gpu.title for gpu in node.gpus if gpu.problem is not None]:
        report.failed_to_measure(", ".join(lost), "no CUDA there, see cuda")
    return [gpu for gpu in node.gpus if gpu.problem is None]


def some(report: Report, gpu: GpuAnswer, rows: Iterable[tuple[str, Fields]]) -> None:
    """A GPU that has none of the ways to multiply that were asked for has proven nothing."""
    if all(problem(row) is None and row.maybe_text("unsupported") for _, row in rows):
        report.failed_to_measure(gpu.title, "it has none of the types that were asked for")


def problem(row: Fields) -> str | None:
    """Why a measurement gave no figure."""
    error = row.maybe_text("error")
    return None if error is None else error or "no reason"


def copied(report: Report, node: NodeAnswer, what: str, row: Fields) -> Metric | None:
    """The speed of a copy from or to a GPU, in GB/s, for a threshold; None on a CPU.

    Adds what is wrong with the data. Raises Unusable for another copy than was asked for.
    """
    value = copy_speed(node, what, row)
    report.exact(what, row.whole("wrong"), "bytes")
    if node.real:
        return value
    report.metrics.append(Metric(f"CPU, {what}", value.value, GBS))
    return None


def copy_speed(node: NodeAnswer, what: str, row: Fields) -> Metric:
    """In GB/s. Raises Unusable for another copy than was asked for, and impossible times."""
    size = row.whole("bytes")
    if size != node.config.copy_bytes:
        raise Unusable(f"{what}: {size} bytes were copied, {node.config.copy_bytes} asked for")
    seconds = median_s(row, what, node.config.iterations)
    return Metric(what, round(agreed(row, "gbs", size / seconds / 1e9, what), 2), GBS)


def median_s(row: Fields, what: str, least: int) -> float:
    """Seconds of one repetition. Raises Unusable for times that cannot be."""
    row.whole("iterations")
    count = row.number("iterations")
    if count < least:
        raise Unusable(f"{what}: {count:g} repetitions were timed, at least {least} were asked for")
    shortest, median, longest, total, wall = (
        row.number(name)
        for name in ("time_s_min", "time_s_median", "time_s_max", "time_s_total", "wall_s")
    )
    if not 0 < shortest <= median <= longest:
        raise Unusable(f"{what}: impossible times {shortest:g}, {median:g}, {longest:g} s")
    # Half of them took no longer than the median, and half no less.
    least_total = max(count / 2 * (shortest + median), longest + (count - 1) * shortest)
    most_total = count / 2 * (median + longest)
    if not 0.99 * least_total <= total <= 1.01 * most_total:
        raise Unusable(f"{what}: {count:g} repetitions of these times do not take {total:g} s")
    if total > 1.05 * wall + 0.001:
        raise Unusable(
            f"{what}: by the device's clock {total:.4g} s, by the node's {wall:.4g} s: one is wrong"
        )
    return median


def agreed(row: Fields, name: str, actual: float, what: str) -> float:
    """The figure from the times, which the payload's own must be equal to."""
    claimed = row.number(name)
    if not math.isclose(claimed, actual, rel_tol=0.01):
        raise Unusable(f"{what}: the payload claims {claimed:.4g}, its times give {actual:.4g}")
    return actual


def number_or_inf(row: Fields, name: str) -> float:
    """inf also for what is not a number: it differs from everything."""
    try:
        return row.number(name)
    except Unusable:
        if row.text(name) not in ("nan", "inf", "-inf"):
            raise
        return math.inf


def sample(table: str, gpu: GpuAnswer, value: Metric, row: Fields, **keys: object) -> Sample:
    """A speed for a baseline: the keys of its rule, which holds for boards of this name."""
    words = (*keys.items(), ("names", (gpu.name,)))
    return Sample(table, words, float(value.value), value.unit, int(row.number("iterations")))


def gpu_rules(rules: Rules) -> GpuRules:
    return rules.model.gpu if rules.model else NO_RULES


def nothing_to_judge_by(rules: Rules, figures: Sequence[Metric]) -> str:
    measured = ", ".join(f"{item.name} {item.value} {item.unit}" for item in figures[:2])
    if rules.model is None:
        reason = f"no thresholds file for the model {rules.hardware}"
    else:
        reason = f"no threshold recorded for {rules.hardware} and what was measured"
    return f"{reason}: {measured or 'nothing'}; record a baseline"


def spelled_out(messages: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    text = "; ".join(messages[:_NAMED])
    more = len(messages) - _NAMED
    return f"{text}; and {more} more" if more > 0 else text


def driver(document: Document) -> str | None:
    """The version of the driver that computed, None where NVML did not tell it."""
    return document.measured.inner("links").inner("nvml").maybe_text("driver")


def _room(item: tuple[Metric, Threshold]) -> float:
    """How far a figure that passes is from failing; the least is shown. Speeds come first."""
    metric, threshold = item
    if threshold.op == "=" or isinstance(metric.value, str) or isinstance(threshold.value, str):
        return math.inf
    ratio = metric.value / threshold.value
    return ratio if threshold.op == "≥" else 1e6 - ratio
