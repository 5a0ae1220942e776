"""No GPU counts memory errors while it works.

What it checks   NVML is asked for ECC errors, remapped memory rows and retired pages before all
                 measurements of speed and after them. An uncorrectable error, a row that was
                 remapped or waits to be, and a page that was retired meanwhile fail. New corrected
                 errors are a warning.
Why it matters   `ecc` looks at a GPU that has nothing to do. A weak cell or a board that is short
                 of power shows when all of its memory works.
What to do       New errors: drain the node, reset the GPU and run the vendor's diagnostics; if they
                 return, have the board replaced. Not known: NVML did not tell what was asked, so
                 nothing is proven; see driver.
                 $ ssh {node} 'nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT'
                 $ ssh {node} 'dcgmi diag -r 3'
"""

from collections.abc import Iterator
from functools import partial

from cluster.text import printable
from validation.checks import computed, ecc, health, links
from validation.checks.document import Document, Fields, Unusable, answer
from validation.checks.health import Finding, GpuValues
from validation.model import Job, Metric, Reply, Result, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "load_ecc"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD

CAUSES = {
    "New errors": When(
        r"under load|waits for a reset|remapping a memory row failed",
        ("ssh {node} 'nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT'",),
    ),
    "Not known": When(r"NVML|were reset during", ("ssh {node} nvidia-smi -q",)),
}

_THRESHOLD = health.none_faulty(
    "no new error and no new remapping: as `ecc`, for the time of the measurements", "derived"
)
_COUNTED = (("ecc_volatile_uncorrected", Verdict.FAIL), ("ecc_volatile_corrected", Verdict.WARN))
_KEPT = {"remapped_rows": "memory rows", "retired_pages": "memory pages"}
_COUNTS = {
    "remapped_rows": ("correctable", "uncorrectable"),
    "retired_pages": ("single_bit", "double_bit"),
}


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        node = computed.read(job, document)
        problem, rows = links.rows(node, document)
        if problem is not None:
            unknown = f"NVML could not be asked: {printable(problem, 200)}"
            raise Unusable(unknown, Verdict.INCONCLUSIVE)
        findings: list[Finding] = []
        metrics: list[Metric] = []
        for gpu, row in zip(node.gpus, rows, strict=True):
            found = _examine(gpu, row)
            if isinstance(found, Finding):
                findings.append(Finding(found.verdict, found.text, gpu.index))
                continue
            before, after = found
            own = health.examined(after, partial(grown, before))
            findings += [Finding(each.verdict, each.text, gpu.index) for each in own]
            metrics += _measures(gpu, before, after)
        return health.conclude(NAME, job, document, _THRESHOLD, findings, tuple(metrics))

    return answer(NAME, job, reply, judge)


def _examine(gpu: computed.GpuAnswer, row: Fields) -> tuple[GpuValues, GpuValues] | Finding:
    """What NVML told before and after, or what is wrong with that."""
    if gpu.problem is not None:
        return Finding(Verdict.INCONCLUSIVE, "did not work, see cuda: NVML was not asked of it")
    before = links.told_before(gpu, row)
    return before if isinstance(before, Finding) else links.told_after(gpu, row, before)


def grown(before: GpuValues, after: GpuValues) -> Iterator[Finding]:
    """Errors that are new. Raises Unanswered where NVML answered with an error."""
    for name, verdict in _COUNTED:
        was, now = before.whole(name), after.whole(name)
        if was is None or now is None:
            continue
        kind = name.rpartition("_")[2]
        if now > was:
            yield Finding(verdict, f"{now - was} {kind} ECC errors under load")
        elif now < was:
            text = f"its counter of {kind} ECC errors was reset: they were reset during the load"
            yield Finding(Verdict.INCONCLUSIVE, text)
    for name, words in _KEPT.items():
        was, now = _kept(before, name), _kept(after, name)
        if was is not None and now is not None and now > was:
            yield Finding(Verdict.FAIL, f"{now - was} {words} were taken out of use under load")
    for finding in ecc.waiting(after):
        # One that `ecc` tells of the board at rest is no news of the load.
        if finding not in list(ecc.waiting(before)):
            yield finding


def _kept(gpu: GpuValues, name: str) -> int | None:
    """How many rows or pages are out of use; None on a board that has no such list."""
    fields = gpu.inner(name)
    return None if fields is None else sum(fields.whole(count) for count in _COUNTS[name])


def _measures(gpu: computed.GpuAnswer, before: GpuValues, after: GpuValues) -> Iterator[Metric]:
    for name, _ in _COUNTED:
        was, now = (health.quietly(values.whole, name) for values in (before, after))
        if was is not None and now is not None:
            kind = name.rpartition("_")[2]
            yield Metric(f"{gpu.title} {kind} ECC errors under load", now - was, "errors")
