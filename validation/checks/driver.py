"""The driver answers for every GPU of a node.

What it checks   NVML works and counts as many GPUs as declared. Each of them answers in time. None
                 needs a reset or a reboot. GPUs of one name have the same memory size.
Why it matters   Jobs on a lost GPU fail. If the library does not match the kernel module, as after
                 an upgrade without a reboot, all jobs fail.
What to do       Version mismatch: reboot the node. A lost GPU: look for XID 79, then try a cold
                 start, then have the board replaced. Insufficient permissions: check the device
                 files and the job's cgroup. No answer in time: reboot the node. An odd answer: the
                 GPU has no name, or other memory than its neighbours; reset it, then have the board
                 replaced. Not loaded: load the kernel module `nvidia`, or apply the role
                 nvidia_driver. Another number: see the check `gpus`.
                 $ ssh {node} 'nvidia-smi -L; cat /proc/driver/nvidia/version'
                 $ ssh {node} 'nvidia-smi -q | grep -i -e "bus id" -e vbios -e "recovery action"'
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from cluster.text import printable
from validation.checks.document import Document, Unusable, answer
from validation.checks.health import (
    Finding,
    GpuValues,
    driver_error,
    examined,
    quietly,
    read_gpus,
    summary,
)
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When, worst
from validation.thresholds import Rules

NAME = "driver"
TIER = Tier.NODE
PAYLOAD = "health"

CAUSES = {
    "Version mismatch": When(
        r"[Mm]ismatch", ("ssh {node} 'nvidia-smi -L; cat /proc/driver/nvidia/version'",)
    ),
    "A lost GPU": When(
        r"[Ll]ost|asks for a|fallen off",
        (
            "ssh {node} 'dmesg | grep -i -e xid -e nvrm'",
            'ssh {node} \'nvidia-smi -q | grep -i -e "bus id" -e "recovery action"\'',
        ),
    ),
    "Insufficient permissions": When(
        r"[Ii]nsufficient [Pp]ermissions|without /dev/nvidia", ("ssh {node} 'ls -l /dev/nvidia*'",)
    ),
    "No answer in time": When(
        r"to answer NVML|in time|did not answer", ("ssh {node} nvidia-smi -L",)
    ),
    "An odd answer": When(r"no name or no UUID|MiB of memory, others"),
    "Not loaded": When(r"NVML cannot be asked", ("ssh {node} 'lsmod | grep nvidia; dkms status'",)),
    "Another number": When(r"NVML counts", ("ssh {node} nvidia-smi -L",)),
}


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    declared = job.nodes[0].gpus.count
    threshold = Threshold("=", declared, "GPUs", "declared", "inventory")

    def judge(document: Document) -> Result:
        gpus, findings = judge_gpus(document, declared)
        faulty = {finding.index for finding in findings if finding.verdict is Verdict.FAIL} - {None}
        return Result(
            NAME,
            TIER,
            job.subject,
            worst([Verdict.PASS, *(finding.verdict for finding in findings)]),
            summary(findings),
            Metric("answering", len(gpus) - len(faulty), "GPUs"),
            threshold,
            tuple(_metrics(document, gpus)),
            document.proof,
        )

    return answer(NAME, job, reply, judge)


def judge_gpus(document: Document, declared: int) -> tuple[tuple[GpuValues, ...], list[Finding]]:
    """The GPUs that NVML counts, and what is wrong with them."""
    if (error := driver_error(document)) is not None:
        return (), [Finding(Verdict.FAIL, f"NVML cannot be asked: {printable(error, 200)}")]
    gpus = read_gpus(document)
    findings = [*_counted(gpus, declared), *_lost(gpus), *_slow(document)]
    answering = [gpu for gpu in gpus if gpu.error is None]
    findings += [finding for gpu in answering for finding in examined(gpu, _examine)]
    findings += _alike(answering)
    return gpus, findings


def _counted(gpus: Sequence[GpuValues], declared: int) -> Iterator[Finding]:
    if len(gpus) == declared:
        return
    text = f"NVML counts {len(gpus)} GPUs, {declared} declared"
    minors = [quietly(gpu.whole, "minor") for gpu in gpus if gpu.error is None]
    if len(minors) == len(gpus) < declared and None not in minors:
        missing = [number for number in range(declared) if number not in minors]
        text += f": without {', '.join(f'/dev/nvidia{number}' for number in missing[:8])}"
    yield Finding(Verdict.FAIL, text)


def _lost(gpus: Sequence[GpuValues]) -> Iterator[Finding]:
    for gpu in gpus:
        if gpu.error is not None:
            text = f"gives no answers: {printable(gpu.error, 160)}"
            yield Finding(Verdict.FAIL, text, gpu.index)


def _slow(document: Document) -> Iterator[Finding]:
    """Half of the time that NVML is given is too near to none at all."""
    limit = document.measured.number("nvml_timeout_s")
    for index, item in enumerate(document.measured.items("gpus")):
        seconds = item.number("seconds")
        if item.maybe_text("error") is None and seconds > limit / 2:
            text = f"took {seconds:.1f} s to answer NVML, of {limit:g} s at most"
            yield Finding(Verdict.WARN, text, index)


def _examine(gpu: GpuValues) -> Iterator[Finding]:
    action = gpu.text("recovery_action")
    if action not in (None, "none"):
        yield Finding(Verdict.FAIL, f"the driver asks for a {action}")
    if not gpu.text("name") or not gpu.text("uuid"):
        yield Finding(Verdict.FAIL, "has no name or no UUID")


def _alike(gpus: Sequence[GpuValues]) -> Iterator[Finding]:
    """Boards of one name with another memory size than most of them."""
    uuids = [uuid for gpu in gpus if (uuid := quietly(gpu.text, "uuid")) is not None]
    if len(set(uuids)) != len(uuids):
        raise Unusable("NVML lists one GPU twice")
    for name in sorted({quietly(gpu.text, "name") or "" for gpu in gpus}):
        boards = [gpu for gpu in gpus if (quietly(gpu.text, "name") or "") == name]
        read = [(gpu, quietly(gpu.whole, "memory_total_mb")) for gpu in boards]
        known = [(gpu, size) for gpu, size in read if size is not None]
        common = Counter(size for _, size in known).most_common(1)
        for gpu, size in known:
            if size != common[0][0]:
                text = f"has {size} MiB of memory, others of the node {common[0][0]}"
                yield Finding(Verdict.FAIL, text, gpu.index)


def _metrics(document: Document, gpus: Sequence[GpuValues]) -> Iterator[Metric]:
    nvml = document.measured.inner("nvml")
    if nvml.has("driver"):
        yield Metric("driver version", nvml.text("driver"))
        yield Metric("NVML version", nvml.text("nvml"))
        cuda = nvml.whole("cuda")
        yield Metric("CUDA of the driver", f"{cuda // 1000}.{cuda % 1000 // 10}")
    for gpu in gpus:
        if gpu.error is not None:
            continue
        for what, unit in (
            ("name", ""),
            ("vbios", ""),
            ("gsp_firmware", ""),
            ("memory_total_mb", "MiB"),
            ("bar1_total_mb", "MiB"),
        ):
            whole = what.endswith("_mb")
            read = quietly(gpu.whole, what) if whole else quietly(gpu.text, what)
            if read is not None:
                yield Metric(f"GPU {gpu.index} {what.removesuffix('_mb')}", read, unit)
