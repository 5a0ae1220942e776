"""PCIe and NVLink have full speed under load, and NVLink counts no new errors.

What it checks   While a GPU copies from and to the host, NVML reports that its PCIe link has the
                 generation and lanes that board and slot support. From the start to the end of all
                 measurements, its NVLinks counted no recovery, no replay and no CRC error. A few
                 CRC errors are a warning; 100 per second, or any of the others, are a failure. More
                 than 8 PCIe replays per minute are a warning.
Why it matters   An idle link uses a slow generation, so a badly trained link only shows under load.
                 A counter that grows under load reveals a faulty cable, seat or board before a
                 training fails on it.
What to do       PCIe: reseat the board, check the riser and the slot's settings in the firmware.
                 NVLink: reset all GPUs of the node. If the counters grow again, the fault is the
                 board, its seat or the baseboard. Not known: NVML did not tell what was asked,
                 so nothing is proven; see driver.
                 $ ssh {node} 'nvidia-smi -q -d PCIE; nvidia-smi nvlink --errorcounters'
                 $ ssh {node} "sudo lspci -vv -d 10de: | grep -e 10de -e LnkCap: -e LnkSta:"
"""

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from cluster.text import printable
from validation.checks import computed, health
from validation.checks.document import Document, Fields, Unusable, answer
from validation.checks.health import Finding
from validation.model import Job, Metric, Reply, Result, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "links"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD

CAUSES = {
    "PCIe": When(
        r"PCIe", ('ssh {node} "sudo lspci -vv -d 10de: | grep -e 10de -e LnkCap: -e LnkSta:"',)
    ),
    "Not known": When(r"NVML (?:could|reported|does)", ("ssh {node} nvidia-smi -q",)),
    "NVLink": When(r"NVLink", ("ssh {node} 'nvidia-smi nvlink --errorcounters'",)),
}

# NVIDIA/DCGM, DcgmHealthWatch.cpp and dcgm_gpu_hardware_limits.h: one NVLink replay or recovery
# more fails, CRC errors fail at 100 a second ("only matter at rates of 100+ per second") and warn
# below that; "8 replays per minute is the maximum" for PCIe.
_THRESHOLD = health.none_faulty(
    "the link that board and slot can have; no new error: DCGM's health"
)
_CRITICAL = ("replay", "recovery", "recovery_failed")
_CRC = ("crc_flit", "crc_data")
_CRC_PER_S = 100.0
_PCIE_REPLAYS_PER_S = 8 / 60
_SILENT = "NVML reported nothing about it before or after the measurements"


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        node = computed.read(job, document)
        problem, all_rows = rows(node, document)
        seconds = document.measured.inner("links").number("seconds")
        findings: list[Finding] = []
        metrics: list[Metric] = []
        if problem is not None:
            text = f"NVML could not be asked: {printable(problem, 200)}"
            findings.append(Finding(Verdict.INCONCLUSIVE, text))
        else:
            for gpu, row in zip(node.gpus, all_rows, strict=True):
                if gpu.problem is None:
                    gpu_findings = _examine(gpu, row, seconds)
                    findings += [
                        Finding(finding.verdict, finding.text, gpu.index)
                        for finding in gpu_findings
                    ]
                    metrics += _measures(gpu, row)
                else:
                    text = "did not work, see cuda"
                    findings.append(Finding(Verdict.INCONCLUSIVE, text, gpu.index))
        return health.conclude(NAME, job, document, _THRESHOLD, findings, tuple(metrics))

    return answer(NAME, job, reply, judge)


def rows(node: computed.NodeAnswer, document: Document) -> tuple[str | None, tuple[Fields, ...]]:
    """What NVML told of each GPU at work, and why it could not be asked, or None."""
    if not node.real:
        raise Unusable("a CPU has no such links")
    links = document.measured.inner("links")
    told = links.items("gpus")
    if len(told) != len(node.gpus):
        raise Unusable(f"the links of {len(told)} GPUs, {len(node.gpus)} were measured")
    return links.inner("nvml").maybe_text("error"), told


class Known(Protocol):
    """A GPU that worked: how it is called, and its UUID or place on the bus."""

    @property
    def title(self) -> str: ...

    @property
    def identity(self) -> str | None: ...


def told_before(gpu: Known, row: Fields) -> health.GpuValues | Finding:
    """What NVML told of a GPU before the measurements, or what is wrong with that.

    Raises Unusable for another GPU than the one that was measured.
    """
    if not row.has("index"):
        return Finding(Verdict.INCONCLUSIVE, "NVML does not list it")
    if not row.has("before"):
        return Finding(Verdict.INCONCLUSIVE, _SILENT)
    before = health.GpuValues(row.inner("before"))
    if before.index != row.whole("index"):
        raise Unusable(f"{gpu.title}: NVML reported another GPU")
    if before.error is not None:
        return Finding(Verdict.FAIL, f"gives no answers: {printable(before.error, 120)}")
    try:
        uuid = before.text("uuid")
    except health.Unanswered as problem:
        return Finding(Verdict.FAIL, str(problem))
    if (gpu.identity or "").startswith("GPU-") and uuid != gpu.identity:
        raise Unusable(f"{gpu.title} is {gpu.identity}, NVML told of {uuid}")
    return before


def told_after(
    gpu: Known, row: Fields, before: health.GpuValues
) -> tuple[health.GpuValues, health.GpuValues] | Finding:
    """What NVML told of a GPU before the measurements and after them, or what is wrong with that.

    Raises Unusable for another GPU than before.
    """
    if not row.has("after"):
        return Finding(Verdict.INCONCLUSIVE, _SILENT)
    after = health.GpuValues(row.inner("after"))
    another = f"{gpu.title}: NVML reported different GPUs before and after the measurements"
    if after.index != before.index:
        raise Unusable(another)
    if after.error is not None:
        return Finding(Verdict.FAIL, f"gives no answers: {printable(after.error, 120)}")
    try:
        if before.text("uuid") != after.text("uuid"):
            raise Unusable(another)
    except health.Unanswered as problem:
        return Finding(Verdict.FAIL, str(problem))
    return before, after


def _examine(gpu: computed.GpuAnswer, row: Fields, seconds: float) -> list[Finding]:
    before = told_before(gpu, row)
    if isinstance(before, Finding):
        return [before]
    told = told_after(gpu, row, before)
    if isinstance(told, Finding):
        return [told]
    _, after = told
    findings: list[Finding] = []
    try:
        findings += _pcie(row, before)
        findings += replays(before, after, seconds)
        findings += nvlink(before, after, seconds)
    except health.Unanswered as problem:
        findings.append(Finding(Verdict.FAIL, str(problem)))
    return findings


def _pcie(row: Fields, before: health.GpuValues) -> Iterator[Finding]:
    if row.whole("samples") == 0:
        text = "NVML did not report its PCIe link while it copied"
        yield Finding(Verdict.INCONCLUSIVE, text)
        return
    for what, most, words in (
        ("generation", "pcie_generation_max", "PCIe generation {} of {} while it copied"),
        ("width", "pcie_width_max", "{} PCIe lanes of {} while it copied"),
    ):
        limit, value = before.whole(most), row.whole(what)
        if limit is None:
            text = f"NVML does not know the {what} that its PCIe link can have"
            yield Finding(Verdict.INCONCLUSIVE, text)
        elif value < limit or value == 0:
            yield Finding(Verdict.FAIL, words.format(value, limit))


def replays(before: health.GpuValues, after: health.GpuValues, seconds: float) -> Iterator[Finding]:
    first, last = (gpu.whole("pcie_replays") for gpu in (before, after))
    if first is not None and last is not None and last - first > _PCIE_REPLAYS_PER_S * seconds:
        yield Finding(Verdict.WARN, f"{last - first} PCIe replays in {seconds:.0f} s of work")


def nvlink(before: health.GpuValues, after: health.GpuValues, seconds: float) -> Iterator[Finding]:
    grown = _grown(before, after)
    if any(count < 0 for count in grown.values()):
        yield Finding(
            Verdict.INCONCLUSIVE, "its NVLink counters were reset during the measurements"
        )
        return
    for names, allowed in ((_CRITICAL, 0.0), (_CRC, _CRC_PER_S * seconds)):
        counted = {name: grown[name] for name in names if grown[name]}
        if not counted:
            continue
        errors = ", ".join(f"{count} {name}" for name, count in counted.items())
        verdict = Verdict.FAIL if sum(counted.values()) >= max(1.0, allowed) else Verdict.WARN
        yield Finding(verdict, f"its NVLinks counted new errors under load ({errors})")


def _grown(before: health.GpuValues, after: health.GpuValues) -> Counter[str]:
    """By how much each kind of error grew, over all links of the board."""
    first, last = (_counters(gpu) for gpu in (before, after))
    if first.keys() != last.keys():
        raise Unusable(
            f"GPU {before.index} had different NVLinks before and after the measurements"
        )
    grown: Counter[str] = Counter()
    for link, counted in first.items():
        for name in (*_CRITICAL, *_CRC):
            if counted.has(name) and last[link].has(name):
                grown[name] += last[link].whole(name) - counted.whole(name)
    return grown


def _counters(gpu: health.GpuValues) -> dict[int, Fields]:
    return {link.whole("link"): link.inner("errors") for link in gpu.items("nvlinks") or ()}


def _measures(gpu: computed.GpuAnswer, row: Fields) -> Iterator[Metric]:
    for what, words in (("generation", "PCIe generation"), ("width", "PCIe lanes")):
        if row.has(what):
            yield Metric(f"{gpu.title} {words} while it copied", row.whole(what))
