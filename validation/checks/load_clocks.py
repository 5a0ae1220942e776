"""Every GPU raises its clock when it works.

What it checks   While a GPU copies from and to the host, NVML is asked for its SM clock, some fifty
                 times a second. The highest answer is at least half of the most that the board can;
                 below three quarters is a warning. The reasons that the driver gave in each answer
                 are told.
Why it matters   A clock that somebody locked low for a measurement, or firmware that holds a board
                 back, shows nowhere while the board is idle: its clock is low then anyway.
What to do       A low clock: reset locked and application clocks. If the clock stays low, read the
                 reasons that the driver gives under load, and look at power and cooling of the
                 node. Not known: NVML did not tell the clock, so nothing is proven; repair what
                 `driver` reports, or update the driver.
                 $ ssh {node} 'sudo nvidia-smi -rgc; sudo nvidia-smi -rac'
                 $ ssh {node} 'nvidia-smi -q -d CLOCK,PERFORMANCE,POWER'

A board that copies is far from its limit of power and heat: products of matrices slow a healthy one
down, copies do not.
"""

from collections.abc import Iterator

from cluster.text import printable
from validation.checks import computed, health, links
from validation.checks.document import Document, Fields, Unusable, answer
from validation.checks.health import Finding
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "load_clocks"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD

CAUSES = {
    "A low clock": When(r"SM clock of \d+ MHz at work"),
    "Not known": When(
        r"NVML (?:does not|did not|could not|reported nothing)",
        ("ssh {node} nvidia-smi -q -d CLOCK",),
    ),
}

_THRESHOLD = health.none_faulty("the clock that NVML says the board can have", "derived")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    limit = rules.common.limits["gpu_load_clock_share"]

    def judge(document: Document) -> Result:
        node = computed.read(job, document)
        problem, rows = links.rows(node, document)
        if problem is not None:
            raise Unusable(f"NVML could not be asked: {printable(problem, 200)}", UNKNOWN)
        findings: list[Finding] = []
        metrics: list[Metric] = []
        for gpu, row in zip(node.gpus, rows, strict=True):
            found = _examine(gpu, row, limit)
            findings += [Finding(own.verdict, own.text, gpu.index) for own in found]
            if gpu.problem is None and row.has("sm_mhz"):
                name = f"{gpu.title} SM clock while it copied"
                metrics.append(Metric(name, row.whole("sm_mhz"), "MHz"))
        return health.conclude(NAME, job, document, _THRESHOLD, findings, tuple(metrics))

    return answer(NAME, job, reply, judge)


UNKNOWN = Verdict.INCONCLUSIVE


def _examine(gpu: computed.GpuAnswer, row: Fields, limit: Threshold) -> Iterator[Finding]:
    if gpu.problem is not None:
        yield Finding(UNKNOWN, "did not work, see cuda")
        return
    before = links.told_before(gpu, row)
    if isinstance(before, Finding):
        yield before
        return
    try:
        most = before.whole("clock_sm_max_mhz")
    except health.Unanswered as problem:
        yield Finding(Verdict.FAIL, str(problem))
        return
    if not most:
        yield Finding(UNKNOWN, "NVML does not know the clock that it can have")
    elif row.whole("samples") == 0 or not row.has("sm_mhz"):
        yield Finding(UNKNOWN, "NVML did not report its clock while it copied")
    elif (verdict := limit.judge(row.whole("sm_mhz") / most)) is not Verdict.PASS:
        held_by = printable(row.text("held_by"), 80)
        text = f"SM clock of {row.whole('sm_mhz')} MHz at work, {most} at most"
        yield Finding(verdict, f"{text}; held back by {held_by}" if held_by else text)
