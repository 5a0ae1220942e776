"""The driver has reported no GPU fault since the node booted.

What it checks   XIDs (GPUs) and SXIDs (NVSwitches) in the kernel log since the boot are judged by
                 their severity in xids.yml. Faults of programs are only counted. A log that does
                 not reach back to the boot is a warning. If the log may not be read, the check is
                 INCONCLUSIVE.
Why it matters   XIDs are the driver's own reports of most faults of boards, links and memory, often
                 hours before anything else shows.
What to do       A switch: follow NVIDIA's guide to the Fabric Manager; then reboot the node. A
                 number: look it up with `python -m validation.explain xid NUMBER` and follow it;
                 then reboot the node, which clears the log. The log may not be read: let Slurm's
                 users read the journal (group systemd-journal), or set the sysctl
                 kernel.dmesg_restrict to 0. The log is incomplete: its ring was too small since the
                 boot; let journald keep it.
                 $ ssh {node} "sudo journalctl --dmesg --boot | grep -e Xid"
                 $ ssh {node} 'nvidia-smi -q | grep -i -e "bus id" -e "recovery action"'
"""

import re
from collections.abc import Iterator, Mapping

from cluster.readers import xids
from cluster.text import printable
from validation.checks.document import Document, Fields, Unusable, answer
from validation.checks.health import (
    Finding,
    conclude,
    driver_error,
    none_faulty,
    read_gpus,
    word,
)
from validation.model import Job, Metric, Reply, Result, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "xid"
TIER = Tier.NODE
PAYLOAD = "health"

CAUSES = {
    "A number": When(
        r"\bXID ([0-9]+)",
        (
            "python -m validation.explain xid {found}",
            'ssh {node} \'nvidia-smi -q | grep -i -e "bus id" -e "recovery action"\'',
        ),
    ),
    "A switch": When(r"\bSXID", ('ssh {node} "sudo journalctl --dmesg --boot | grep -e SXid"',)),
    "The log may not be read": When(
        r"may not be read", ("ssh {node} sysctl kernel.dmesg_restrict",)
    ),
    "The log is incomplete": When(
        r"no longer contains|how far back", ("ssh {node} journalctl --disk-usage",)
    ),
}

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    known = xids.load()
    threshold = none_faulty(known.source)

    def judge(document: Document) -> Result:
        log = document.measured.inner("kernel_log")
        findings = judge_log(document, known)
        metrics = (
            Metric("log", log.text("source")),
            *(
                Metric(f"{event.text('kind').upper()} {event.whole('code')}", event.whole("count"))
                for event in log.items("events")
            ),
        )
        return conclude(NAME, job, document, threshold, findings, metrics)

    return answer(NAME, job, reply, judge)


def judge_log(document: Document, known: xids.Xids) -> list[Finding]:
    """What the log tells. Raises Unusable where it may not be read."""
    log = document.measured.inner("kernel_log")
    if not log.has("source"):
        why = printable(log.text("error"), 200)
        raise Unusable(f"the kernel log may not be read: {why}", Verdict.INCONCLUSIVE)
    findings = list(_begins(log))
    indices = _indices(document)
    for event in log.items("events"):
        findings += _judged(event, known, indices)
    return findings


def _begins(log: Fields) -> Iterator[Finding]:
    source = printable(log.text("source"), 40)
    if word(log, "complete", "yes", "no"):
        return
    if not log.has("begins_s"):
        yield Finding(Verdict.WARN, f"{source} does not say how far back it goes")
        return
    hours = log.number("begins_s") / 3600
    yield Finding(
        Verdict.WARN, f"{source} no longer contains the first {hours:.1f} h after the boot"
    )


def _judged(
    event: Fields, known: xids.Xids, indices: Mapping[tuple[int, ...], int]
) -> Iterator[Finding]:
    kind, code, count = event.text("kind"), event.whole("code"), event.whole("count")
    text, pci = event.text("text"), event.text("pci")
    if event.has("seconds"):
        event.number("seconds")
    if kind not in ("xid", "sxid") or count == 0:
        raise Unusable(f"{count} events of the kind {kind!r}")
    address = _address(pci)
    index = None if kind == "sxid" else indices.get(address)
    worth, name = xids.judge(kind, code, text, known)
    if worth is None:
        return
    times = "" if count == 1 else f" {count} times"
    where = "" if index is not None else f" at PCI {printable(pci, 20)}"
    yield Finding(Verdict(worth), f"{kind.upper()} {code}{where}{times} ({name})", index)


def _indices(document: Document) -> dict[tuple[int, ...], int]:
    """NVML's index of a GPU by its PCI address, where NVML tells it."""
    if driver_error(document) is not None:
        return {}
    indices = {}
    for gpu, item in zip(read_gpus(document), document.measured.items("gpus"), strict=True):
        values = item.inner("values")
        if values.has("pci"):
            indices[_address(values.text("pci"))] = gpu.index
    return indices


def _address(pci: str) -> tuple[int, ...]:
    """Domain, bus and device. Raises Unusable for anything else."""
    if not (match := _ADDRESS.match(pci.lower())):
        raise Unusable(f"{pci!r} is no PCI address")
    return tuple(int(part, 16) for part in match.groups())
