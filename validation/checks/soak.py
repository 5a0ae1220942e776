"""Every GPU works under load for as long as it should, and nothing holds it back or counts errors.

What it checks   All GPUs multiply random numbers for the whole time of the suite. Meanwhile neither
                 heat nor the power brake reduces their clocks. From the beginning to the end, no
                 uncorrectable ECC error is counted, no memory row waits to be remapped, and no
                 NVLink replay or recovery happens. New corrected ECC errors and errors of network
                 devices are a warning. On nodes without GPUs the CPUs do the work.
Why it matters   Heat, power supply and weak solder joints show under load, after minutes or hours,
                 and not in a short test.
What to do       Heat: check fans, airflow and dust. Power brake: check the power supplies. A limit
                 that was set: reset clocks and the power limit, or declare that they are meant. New
                 errors: run the vendor's diagnostics on the named GPU. A network device that counts
                 errors: check its cable and its port at the switch. Not known: NVML did not tell
                 what was asked; see driver. A GPU that did not work to the end: see the kernel's
                 log of that time.
                 $ ssh {node} 'nvidia-smi -q -d TEMPERATURE,PERFORMANCE,POWER,ECC'
                 $ ssh {node} 'sudo dmesg -T | tail -50; ip -s link'
"""

from collections.abc import Iterator, Sequence

from cluster.text import printable
from validation.checks import clocks, commands, health, links, soaked
from validation.checks.document import Document, Fields, Unusable, answer
from validation.checks.health import Finding, GpuValues, Unanswered
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When, worst
from validation.thresholds import Rules

NAME = "soak"
TIER = Tier.NODE
PAYLOAD = soaked.PAYLOAD

_DIAGNOSED = ("ssh {node} dcgmi diag -r 3", "ssh {node} 'nvidia-smi -q -d ECC'")
CAUSES = {
    "Heat": When(
        clocks.CAUSES["Heat"].words,
        ("ssh {node} 'nvidia-smi -q -d TEMPERATURE,PERFORMANCE'",),
    ),
    "Power brake": When(
        clocks.CAUSES["Power brake"].words,
        ("ssh {node} 'nvidia-smi -q -d POWER,PERFORMANCE'",),
    ),
    "A limit that was set": When(
        r"limited by a setting|power limit", ("ssh {node} 'nvidia-smi -q -d CLOCK,POWER'",)
    ),
    "New errors": When(
        r"ECC errors under load|waits for a reset|PCIe replays|counted new errors", _DIAGNOSED
    ),
    "A network device that counts errors": When(r"\S+ counted \d+ ", (commands.PACKETS,)),
    "Not known": When(r"NVML|were reset during", ("ssh {node} nvidia-smi -q",)),
    "A GPU that did not work to the end": When(
        r"^(?:GPU \d+|MIG instance \d+|CPU)(?:: (?!it could)| was under load)",
        ("ssh {node} 'sudo dmesg -T | tail -50'",),
    ),
}

# Heat that lasts; the first moments of a load may show what passes.
_LASTING = 3


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        asked = soaked.settings(job)
        stretches = soaked.stretches(job, document)
        findings = [*_held_back(document, asked.device), *_counted(job, document, asked.device)]
        least = Threshold("≥", asked.seconds, "s", "defined", "the load that the suite asks for")
        shortest = min(
            (stretch.windows[-1].at_ns - document.measured.whole("began_ns")) / 1e9
            for stretch in stretches
        )
        value = Metric("under load", round(shortest, 1), "s")
        verdict = worst([least.judge(shortest), *(finding.verdict for finding in findings)])
        return Result(
            NAME,
            TIER,
            job.subject,
            verdict,
            health.summary(findings),
            value,
            least,
            tuple(_metrics(stretches)),
            document.proof,
        )

    return answer(NAME, job, reply, judge)


def _metrics(stretches: Sequence[soaked.Stretch]) -> Iterator[Metric]:
    for stretch in stretches:
        rates = sorted(window.rate for window in stretch.windows)
        yield Metric(f"{stretch.title} products", float(f"{rates[len(rates) // 2]:.4g}"), "1/s")
        for name, unit in (("highest_c", "°C"), ("least_mhz", "MHz"), ("power_w", "W")):
            if (seen := getattr(stretch, name)) is not None:
                words = {"highest_c": "temperature, most", "least_mhz": "clock, least"}
                yield Metric(f"{stretch.title} {words.get(name, 'power')}", round(seen, 1), unit)


def _held_back(document: Document, device: str) -> list[Finding]:
    """What reduced the clocks of GPUs, in several samples."""
    samples = document.measured.inner("samples")
    if device != "cuda":
        return []
    seen: dict[int, dict[str, tuple[Finding, int]]] = {}
    gpus = samples.items("gpus")
    for item in gpus:
        gpu = GpuValues(item)
        if gpu.error is not None:
            findings = [Finding(Verdict.FAIL, f"gives no answers under load: {gpu.error}")]
        else:
            findings = health.examined(gpu, clocks.held_back)
        for finding in findings:
            own = seen.setdefault(gpu.index, {})
            kind = finding.text.partition(":")[0] if finding.verdict is Verdict.FAIL else ""
            own[kind] = (finding, own.get(kind, (finding, 0))[1] + 1)
    if not gpus:
        return [Finding(Verdict.INCONCLUSIVE, "NVML was not heard of the GPUs under load")]
    return [
        Finding(finding.verdict, f"{finding.text} ({times} samples)", index)
        for index, own in seen.items()
        for finding, times in own.values()
        if times >= _LASTING or finding.verdict is not Verdict.FAIL
    ]


def _counted(job: Job, document: Document, device: str) -> list[Finding]:
    """Counters that grew, and ought not to."""
    counters = document.measured.inner("counters")
    before, after = counters.inner("before"), counters.inner("after")
    findings = list(_net(before.inner("net"), after.inner("net")))
    if device == "cuda":
        pairs = (before.items("gpus"), after.items("gpus"))
        if len(pairs[0]) != len(pairs[1]) or len(pairs[0]) < job.nodes[0].gpus.count:
            return [*findings, Finding(Verdict.INCONCLUSIVE, "NVML tells no counters of the GPUs")]
        for earlier, later in zip(*pairs, strict=True):
            findings += _gpu(GpuValues(earlier), GpuValues(later), document)
    return findings


def _gpu(before: GpuValues, after: GpuValues, document: Document) -> list[Finding]:
    if before.index != after.index:
        raise Unusable("NVML told of different GPUs before and after the load")
    for gpu in (before, after):
        if gpu.error is not None:
            text = f"gives no answers: {printable(gpu.error, 120)}"
            return [Finding(Verdict.FAIL, text, before.index)]
    findings: list[Finding] = []
    try:
        for name, verdict in (("uncorrected", Verdict.FAIL), ("corrected", Verdict.WARN)):
            was, now = (gpu.whole(f"ecc_volatile_{name}") for gpu in (before, after))
            if was is not None and now is not None and now > was:
                findings.append(Finding(verdict, f"{now - was} {name} ECC errors under load"))
        rows = after.inner("remapped_rows")
        if rows is not None and health.word(rows, "pending", "yes", "no"):
            findings.append(Finding(Verdict.FAIL, "a memory row waits for a reset to be remapped"))
        seconds = max(1.0, _seconds(document))
        findings += [*links.replays(before, after, seconds), *links.nvlink(before, after, seconds)]
    except Unanswered as problem:
        findings.append(Finding(Verdict.FAIL, str(problem)))
    return [Finding(finding.verdict, finding.text, before.index) for finding in findings]


def _seconds(document: Document) -> float:
    ends = [
        row.number("at_s")
        for gpu in document.measured.items("gpus")
        for row in gpu.inner("soak").items("windows")
    ]
    return max(ends, default=0.0)


def _net(before: Fields, after: Fields) -> Iterator[Finding]:
    """Network devices that are there both times."""
    for device in before.values:
        if device not in after.values:
            continue
        earlier, later = before.inner(device), after.inner(device)
        grown = {
            name: later.whole(name) - earlier.whole(name)
            for name in earlier.values
            if name in later.values and later.whole(name) > earlier.whole(name)
        }
        if grown:
            counts = ", ".join(f"{count} {name}" for name, count in grown.items())
            yield Finding(Verdict.WARN, printable(f"{device} counted {counts}", 120))
