"""Every core of a node is as fast as the others, and computes right.

What it checks   Each core hashes a buffer that fits into its own cache, again and again, alone and
                 then with all others at once. Every hash is right. The best try of each core is
                 compared with the median of the node's cores: a fifth of it fails, two fifths are a
                 warning. The median itself must be what any processor reaches.
Why it matters   A core that is held at its lowest clock, or drowned in interrupts, makes a job wait
                 at every step, and the node's load and the other cores look as usual.
What to do       A slow core: restart the node. If the core is slow again, look for clock limits and
                 interrupts of that core, then have the processor replaced. All cores slow: look at
                 the power profile in the firmware, at the governor and at what else runs there.
                 Wrong hashes: take the node out of service and have the processor replaced.
                 $ ssh {node} 'grep MHz /proc/cpuinfo | sort | uniq -c; cpupower frequency-info'
                 $ ssh {node} 'dmesg | grep -i -e mce -e throttl; head -40 /proc/interrupts'

Fast and efficient cores beside each other (Intel hybrid, Arm big.LITTLE) differ by less than that,
and a busy hypervisor takes time from all tries of a core only for as long as it holds it.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from validation.checks import commands, host
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.payloads.cores import FEWEST, SIZE
from validation.thresholds import Rules

NAME = "cores"
TIER = Tier.NODE
PAYLOAD = host.PAYLOAD

CAUSES = {
    "A slow core": When(r"the median of \d+ cores"),
    "All cores slow": When(
        r"the median core hashes", ("ssh {node} cpupower frequency-info", commands.BUSY)
    ),
    "Wrong hashes": When(r"hashes are wrong", (commands.KERNEL,)),
}

SPEED = "hashing of a core"
_RIGHT = Threshold("=", 0, "hashes", "defined", "a hash of the same bytes is the same everywhere")
_HOW = ("alone", "together")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Core:
    """GB/s alone and with all others."""

    cpu: int
    alone: float
    together: float

    def speed(self, how: str) -> float:
        return self.alone if how == "alone" else self.together


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    limits = rules.common.limits

    def judge(document: Document) -> Result:
        found = host.part(document, "cores")
        cores, wrong = read(found)
        medians = {how: _median(cores, how) for how in _HOW}
        value, threshold = Metric("wrong", wrong, "hashes"), _RIGHT
        verdict, message = _RIGHT.judge(wrong), ""
        if verdict is Verdict.FAIL:
            message = f"{wrong} hashes are wrong"
        share, how, slowest = min(
            (core.speed(how) / medians[how], how, core.cpu) for how in _HOW for core in cores
        )
        of_median = Metric("slowest core, of the median", float(f"{share:.3g}"))
        if verdict is Verdict.PASS:
            limit = limits["core_speed_share"]
            verdict = limit.judge(share)
            value, threshold = of_median, limit
            if verdict is not Verdict.PASS:
                message = _sentence(cores, medians, limit, verdict)
        if verdict.green and limits["core_gbs"].judge(medians["alone"]) is not Verdict.PASS:
            threshold = limits["core_gbs"]
            value = Metric(SPEED, float(f"{medians['alone']:.3g}"), host.GBS)
            verdict = threshold.judge(medians["alone"])
            message = f"the median core hashes {value.value} GB/s, {threshold.value} are needed"
        metrics = (
            Metric("cores", len(cores), "cores"),
            *(Metric(f"{SPEED} {how}", round(medians[how], 3), host.GBS) for how in _HOW),
            Metric("slowest CPU", slowest, how),
            *(() if value is of_median else (of_median,)),
        )
        return Result(
            NAME, TIER, job.subject, verdict, message, value, threshold, metrics, document.proof
        )

    return answer(NAME, job, reply, judge)


def read(found: Fields) -> tuple[list[Core], int]:
    """The cores of an answer, and how many hashes came out wrong. Raises Unusable for none."""
    if found.whole("bytes") != SIZE:
        raise Unusable(f"hashed {found.whole('bytes')} bytes, {SIZE} were asked for")
    cores, wrong = [], 0
    for item in found.items("cores"):
        cpu, speeds = item.whole("cpu"), []
        for how in _HOW:
            tried = item.inner(how)
            best, tries = tried.number("best_s"), tried.whole("tries")
            if tries < FEWEST or tried.whole("wrong") > tries or best < _SHORTEST_S:
                raise Unusable(f"CPU {cpu}: {tries} tries {how}, the best in {best:g} s")
            speeds.append(SIZE / best / 1e9)
            wrong += tried.whole("wrong")
        cores.append(Core(cpu, *speeds))
    if not cores or len({core.cpu for core in cores}) != len(cores):
        raise Unusable("the cores that hashed are not each named once")
    return cores, wrong


# 256 KiB in a microsecond are 262 GB/s, which no core hashes.
_SHORTEST_S = 1e-6


def _median(cores: Sequence[Core], how: str) -> float:
    return statistics.median(core.speed(how) for core in cores)


def _sentence(
    cores: Sequence[Core], medians: dict[str, float], limit: Threshold, verdict: Verdict
) -> str:
    """Such as "CPU 17: 0.01 GB/s alone, the median of 64 cores is 1.9"."""
    slow = []
    for core in cores:
        for how in _HOW:
            if limit.judge(core.speed(how) / medians[how]) is verdict:
                slow.append(
                    f"CPU {core.cpu}: {core.speed(how):.3g} GB/s {how}, "
                    f"the median of {len(cores)} cores is {medians[how]:.3g}"
                )
                break
    more = f"; and {len(slow) - _SHOWN} more" if len(slow) > _SHOWN else ""
    return "; ".join(slow[:_SHOWN]) + more
