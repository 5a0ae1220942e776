"""Every GPU raises its clock when it works, and neither heat nor power supply holds it back.

What it checks   While a GPU copies from and to the host, NVML is asked for its SM clock, some fifty
                 times a second. The highest answer is at least half of the most that the board can;
                 below three quarters is a warning. The reasons that the driver gave in each answer
                 are told. While all GPUs compute products, and while they move their own memory,
                 clock, power, temperature and the driver's reasons are told, and neither hardware
                 nor heat slows a board down: a warning from one answer in a hundred on, a failure
                 for half of them, and for any slowdown by the hardware or the power brake. Its
                 limit of power slows a healthy board down too, and is only told.
Why it matters   A clock that somebody locked low for a measurement, or firmware that holds a board
                 back, shows nowhere while the board is idle: its clock is low then anyway. A hot
                 board, or one that is short of power, is as fast as the others in its first second.
What to do       A low clock: reset locked and application clocks. If the clock stays low, read the
                 reasons that the driver gives under load, and look at power and cooling of the
                 node. Heat: check fans, airflow and dust, then the board's heat sink. Power brake:
                 check the power supplies and the cables to the board. Not known: NVML did not tell
                 the clock, so nothing is proven; repair what `driver` reports, or update the
                 driver.
                 $ ssh {node} 'sudo nvidia-smi -rgc; sudo nvidia-smi -rac'
                 $ ssh {node} 'nvidia-smi -q -d CLOCK,PERFORMANCE,POWER'

A board that copies is far from its limit of power and heat: products of matrices slow a healthy one
down, copies do not. So the clock itself is judged while it copies, and told under the other loads.
"""

from collections.abc import Iterator

from cluster.text import printable
from validation.checks import computed, health, links
from validation.checks.document import Document, Fields, Unusable, answer
from validation.checks.health import Finding
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.payloads import gpu_links
from validation.thresholds import Rules

NAME = "load_clocks"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD

CAUSES = {
    "A low clock": When(r"SM clock of \d+ MHz at work"),
    "Heat": When(
        r"thermal slowdown|°C under", ("ssh {node} 'nvidia-smi -q -d TEMPERATURE,PERFORMANCE'",)
    ),
    "Power brake": When(
        r"power brake|hardware slowdown", ("ssh {node} 'nvidia-smi -q -d POWER,PERFORMANCE'",)
    ),
    "Not known": When(
        r"NVML (?:does not|did not|could not|reported nothing)",
        ("ssh {node} nvidia-smi -q -d CLOCK",),
    ),
}

_THRESHOLD = health.none_faulty("the clock that NVML says the board can have", "derived")

# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html: the first two halve
# the clocks, at least; the third shows for a moment also while clocks change, and so counts where
# it is in every answer. The last lowers them step by step.
_HARDWARE = ("hardware thermal slowdown", "hardware power brake")
_LASTING = "hardware slowdown"
_SEVERAL = (
    3  # as the reader asks for what `clocks` judges: one answer proves no slowdown that lasts
)
_HEAT = "software thermal slowdown"


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    limit, heat = (rules.common.limits[f"gpu_{name}_share"] for name in ("load_clock", "heat"))

    def judge(document: Document) -> Result:
        node = computed.read(job, document)
        problem, rows = links.rows(node, document)
        if problem is not None:
            raise Unusable(f"NVML could not be asked: {printable(problem, 200)}", UNKNOWN)
        findings: list[Finding] = []
        metrics: list[Metric] = []
        for gpu, row in zip(node.gpus, rows, strict=True):
            found = _examine(gpu, row, limit, heat)
            findings += [Finding(own.verdict, own.text, gpu.index) for own in found]
            if gpu.problem is None and row.has("sm_mhz"):
                name = f"{gpu.title} SM clock while it copied"
                metrics.append(Metric(name, row.whole("sm_mhz"), "MHz"))
            if gpu.problem is None:
                metrics += _measures(gpu, row)
        return health.conclude(NAME, job, document, _THRESHOLD, findings, tuple(metrics))

    return answer(NAME, job, reply, judge)


UNKNOWN = Verdict.INCONCLUSIVE


def _examine(
    gpu: computed.GpuAnswer, row: Fields, limit: Threshold, heat: Threshold
) -> Iterator[Finding]:
    if gpu.problem is not None:
        yield Finding(UNKNOWN, "did not work, see cuda")
        return
    before = links.told_before(gpu, row)
    if isinstance(before, Finding):
        yield before
        return
    try:
        most = before.whole("clock_sm_max_mhz")
        hottest = before.whole("temperature_slowdown_c")
    except health.Unanswered as problem:
        yield Finding(Verdict.FAIL, str(problem))
        return
    yield from _while_it_copied(row, most, limit)
    for load in _loads(gpu, row):
        yield from held_back(load, hottest, heat)


def _while_it_copied(row: Fields, most: int | None, limit: Threshold) -> Iterator[Finding]:
    if not most:
        yield Finding(UNKNOWN, "NVML does not know the clock that it can have")
    elif row.whole("samples") == 0 or not row.has("sm_mhz"):
        yield Finding(UNKNOWN, "NVML did not report its clock while it copied")
    elif (verdict := limit.judge(row.whole("sm_mhz") / most)) is not Verdict.PASS:
        held_by = printable(row.text("held_by"), 80)
        text = f"SM clock of {row.whole('sm_mhz')} MHz at work, {most} at most"
        yield Finding(verdict, f"{text}; held back by {held_by}" if held_by else text)


def _loads(gpu: computed.GpuAnswer, row: Fields) -> tuple[Fields, ...]:
    """What NVML told of each load. Raises Unusable unless it is of all loads."""
    loads = row.items("loads")
    named = [load.text("load") for load in loads]
    if named != list(gpu_links.LOADS):
        raise Unusable(f"{gpu.title}: NVML was asked under {named}, not {list(gpu_links.LOADS)}")
    return loads


def held_back(load: Fields, hottest: int | None, heat: Threshold) -> Iterator[Finding]:
    """What slowed a GPU down under one load."""
    under, samples = f"under {load.text('load')}", load.whole("samples")
    if samples == 0:
        yield Finding(UNKNOWN, f"NVML did not report anything {under}")
        return
    shares = shares_of(load)
    if load.has("temperature_c") and hottest is not None:
        now = load.whole("temperature_c")
        if now >= hottest:
            text = f"{now} °C {under}, the board slows down from {hottest} °C on"
            yield Finding(Verdict.FAIL, text)
    for reason, share in shares.items():
        lasting = reason == _LASTING and share == 1 and samples >= _SEVERAL
        if reason in _HARDWARE or lasting:
            verdict = Verdict.FAIL
        else:
            verdict = heat.judge(share) if reason == _HEAT else Verdict.PASS
        if verdict is not Verdict.PASS:
            yield Finding(verdict, f"{reason} in {share:.0%} of the answers {under}")


def shares_of(load: Fields) -> dict[str, float]:
    """Which part of the answers named each reason. Raises Unusable for what is no part."""
    shares = {item.text("reason"): item.number("share") for item in load.items("held_by")}
    if not all(0 <= share <= 1 for share in shares.values()):
        raise Unusable("more answers of NVML named a reason than there were")
    return shares


def _measures(gpu: computed.GpuAnswer, row: Fields) -> Iterator[Metric]:
    for load in _loads(gpu, row):
        under = f"under {load.text('load')}"
        for name, words, unit in (
            ("sm_mhz", "SM clock", "MHz"),
            ("power_w", "power", "W"),
            ("temperature_c", "temperature", "°C"),
        ):
            if load.has(name):
                yield Metric(f"{gpu.title} {words} {under}", load.whole(name), unit)
        held_by = ", ".join(f"{reason} {share:.0%}" for reason, share in shares_of(load).items())
        if held_by:
            yield Metric(f"{gpu.title} held back {under}", printable(held_by, 120))
