"""What the checks of the payload `health` share: its answer, GPU by GPU, read strictly.

A value of a GPU is known, or this board or driver does not know it (None here, and said in the
payload), or NVML answered with an error: that fails the check which needs the value, on that GPU. A
GPU that gives no answers at all is a matter of the check `driver`; the others judge the rest, so
that one lost GPU shows once, and as what it is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cluster.text import printable
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, worst

_ERROR_TEXT = 120


class Unanswered(Exception):
    """NVML gave an error in place of a value."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one GPU, or with the node (index None); PASS is a remark alone."""

    verdict: Verdict
    text: str
    index: int | None = None


class GpuValues:
    """One GPU's values. A getter returns None for a value that this board does not have.

    Raises Unanswered where NVML answered with an error, Unusable where the answer is malformed.
    """

    def __init__(self, fields: Fields) -> None:
        self.index = fields.whole("index")
        self.error = fields.maybe_text("error")
        self._values = fields.inner("values")
        self._unknown: dict[str, tuple[str, str]] = {}
        for item in fields.items("unknown"):
            kind = item.text("kind")
            if kind not in ("error", "unsupported"):
                raise Unusable(f"GPU {self.index}: {kind!r} is no reason for a missing value")
            self._unknown[item.text("name")] = kind, item.text("why")

    def knows(self, name: str) -> bool:
        known = self._values.has(name)
        if known == (name in self._unknown):
            words = "both a value and" if known else "neither a value nor"
            raise Unusable(f"GPU {self.index} has {words} a reason for none: {name}")
        if known:
            return True
        kind, why = self._unknown[name]
        if kind == "error":
            raise Unanswered(f"does not tell its {name}: {printable(why, _ERROR_TEXT)}")
        return False

    def whole(self, name: str) -> int | None:
        return self._values.whole(name) if self.knows(name) else None

    def text(self, name: str) -> str | None:
        return self._values.text(name) if self.knows(name) else None

    def on(self, name: str) -> bool | None:
        """A mode that is "on" or "off"."""
        return word(self._values, name, "on", "off") if self.knows(name) else None

    def inner(self, name: str) -> Fields | None:
        return self._values.inner(name) if self.knows(name) else None

    def items(self, name: str) -> tuple[Fields, ...] | None:
        return self._values.items(name) if self.knows(name) else None


Value = TypeVar("Value")


def quietly(read: Callable[[str], Value | None], name: str) -> Value | None:
    """What a getter returns, and None where NVML gave an error: for what is only shown."""
    try:
        return read(name)
    except Unanswered:
        return None


def word(fields: Fields, name: str, true: str, false: str) -> bool:
    """A field that has one of two words. Raises Unusable for anything else."""
    value = fields.text(name)
    if value not in (true, false):
        raise Unusable(f"{name} is {value!r}, neither {true} nor {false}")
    return value == true


def driver_error(document: Document) -> str | None:
    """Why NVML could not be asked, or None."""
    return document.measured.inner("nvml").maybe_text("error")


def read_gpus(document: Document) -> tuple[GpuValues, ...]:
    """All GPUs that NVML counts, in order. Raises Unusable for any other list."""
    gpus = tuple(GpuValues(item) for item in document.measured.items("gpus"))
    count = document.measured.inner("nvml").whole("count")
    # As many as it has told, whatever it counts: the number may be anything.
    if count != len(gpus) or [gpu.index for gpu in gpus] != list(range(len(gpus))):
        raise Unusable(f"NVML counts {count} GPUs, the answer is about {len(gpus)}")
    return gpus


def answering(document: Document) -> list[GpuValues]:
    """The GPUs that answer. Raises Unusable where none does: `driver` says why."""
    if (error := driver_error(document)) is not None:
        known = "NVML could not be asked, see driver"
        raise Unusable(f"{known}: {printable(error, _ERROR_TEXT)}", Verdict.INCONCLUSIVE)
    gpus = [gpu for gpu in read_gpus(document) if gpu.error is None]
    if not gpus:
        raise Unusable("no GPU answers, see driver", Verdict.INCONCLUSIVE)
    return gpus


def examined(gpu: GpuValues, examine: Callable[[GpuValues], Iterable[Finding]]) -> list[Finding]:
    """The findings of one GPU; a value that it does not tell is one of them."""
    findings: list[Finding] = []
    try:
        for finding in examine(gpu):
            findings.append(Finding(finding.verdict, finding.text, gpu.index))
    except Unanswered as problem:
        findings.append(Finding(Verdict.FAIL, str(problem), gpu.index))
    return findings


def each_gpu(
    check: str,
    job: Job,
    reply: Reply,
    threshold: Threshold,
    examine: Callable[[GpuValues], Iterable[Finding]],
    measures: Callable[[GpuValues], Iterable[Metric]] = lambda gpu: (),
    together: Callable[[Sequence[GpuValues]], Iterable[Finding]] = lambda gpus: (),
) -> Result:
    """Judges every GPU that answers; the value is how many of them have something wrong.

    `together` looks at all of them at once. Where NVML cannot be asked, or no GPU answers, nothing
    is known: inconclusive, and `driver` says why.
    """

    def judge(document: Document) -> Result:
        gpus = answering(document)
        findings = [finding for gpu in gpus for finding in examined(gpu, examine)]
        findings += together(gpus)
        return conclude(check, job, document, threshold, findings, _metrics(gpus, measures))

    return answer(check, job, reply, judge)


def _metrics(
    gpus: Iterable[GpuValues], measures: Callable[[GpuValues], Iterable[Metric]]
) -> tuple[Metric, ...]:
    metrics: list[Metric] = []
    for gpu in gpus:
        try:
            for metric in measures(gpu):
                metrics.append(Metric(f"GPU {gpu.index} {metric.name}", metric.value, metric.unit))
        except Unanswered:
            continue  # what is judged says so; this is only shown
    return tuple(metrics)


def conclude(
    check: str,
    job: Job,
    document: Document,
    threshold: Threshold,
    findings: Sequence[Finding],
    metrics: tuple[Metric, ...] = (),
) -> Result:
    """One result of many findings: the worst verdict, the worst findings first."""
    faulty = {finding.index for finding in findings if not finding.verdict.green}
    verdict = worst([Verdict.PASS, *(finding.verdict for finding in findings)])
    message = summary(findings)
    value = Metric("faulty", len(faulty), "GPUs")
    return Result(
        check,
        Tier.NODE,
        job.subject,
        verdict,
        message,
        value,
        threshold,
        metrics,
        document.proof,
    )


_ORDER = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.WARN, Verdict.PASS)


def summary(findings: Iterable[Finding]) -> str:
    """The findings as one line, the worst first; GPUs of which the same is said stand together."""
    alike: dict[tuple[Verdict, str], list[int]] = {}
    for finding in findings:
        indices = alike.setdefault((finding.verdict, finding.text), [])
        if finding.index is not None:
            indices.append(finding.index)
    parts = []
    for (_, text), indices in sorted(alike.items(), key=lambda item: _ORDER.index(item[0][0])):
        who = f"GPU {', '.join(map(str, indices))}: " if indices else ""
        parts.append(f"{who}{text}")
    return printable("; ".join(parts), 300)


def over(limit: Threshold, count: float, what: str) -> Iterator[Finding]:
    """A finding where a count is above its limit, or above what is to be warned of."""
    verdict = limit.judge(count)
    if verdict is not Verdict.PASS:
        allowed = limit.value if verdict is Verdict.FAIL else limit.warn
        yield Finding(verdict, f"{count:,.12g} {what}, more than {allowed:,.12g}")


def none_faulty(source: str, provenance: str = "defined") -> Threshold:
    """Not one GPU may have anything wrong; `source` says where the criterion comes from."""
    return Threshold("=", 0, "GPUs", provenance, source)
