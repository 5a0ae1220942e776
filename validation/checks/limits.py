"""A job has sufficient limits: locked memory, open files, shared memory.

What it checks   In a job's own process, locked memory (memlock) is unlimited if the declared fabric
                 is InfiniBand or RoCE. Open files can be raised at least to 4096, the kernel's
                 usual hard limit. On nodes with real GPUs, 1 GiB of /dev/shm is free. Limits on
                 processes and stack are recorded.
Why it matters   RDMA pins the memory that it sends from, and NCCL opens a socket per peer and
                 shares buffers of a node in /dev/shm. With a low limit they fail with "out of
                 memory" or "unhandled system error", at sizes that no small test reaches.
What to do       Memory, files: Slurm passes the limits of the submitting shell on to the tasks. Set
                 PropagateResourceLimitsExcept=MEMLOCK in slurm.conf, and LimitMEMLOCK=infinity and
                 LimitNOFILE in slurmd's unit. Shared memory: a full /dev/shm contains files of jobs
                 that have ended.
                 $ ssh {node} 'systemctl show slurmd -p LimitMEMLOCK -p LimitNOFILE'
                 $ ssh {node} 'df -h /dev/shm; ls -l /dev/shm'
"""

from collections.abc import Iterator

from cluster.declaration import Node
from cluster.text import printable
from validation.checks import infiniband
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.payloads.limits import RESOURCES, UNLIMITED
from validation.thresholds import Rules

NAME = "limits"
TIER = Tier.NODE
PAYLOAD = "host"

CAUSES = {
    "Memory, files": When(
        r"locked memory|open files",
        ("ssh {node} 'systemctl show slurmd -p LimitMEMLOCK -p LimitNOFILE'",),
    ),
    "Shared memory": When(r"/dev/shm", ("ssh {node} 'df -h /dev/shm; ls -l /dev/shm'",)),
}

# Below it somebody set it: Linux starts with it (INR_OPEN_MAX), and NCCL raises its own to the hard
# limit (setFilesLimit).
LEAST_FILES = 4096
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html: --shm-size=1g
LEAST_SHM_MB = 1024

_THRESHOLD = Threshold(
    "=",
    0,
    "limits",
    "defined",
    "memlock: https://slurm.schedmd.com/faq.html#memlock, and `--ulimit memlock=-1` as /dev/shm of "
    "1 GiB in NCCL's troubleshooting; open files: the kernel's own hard limit",
)
_UNITS = {"memlock": "bytes", "stack": "bytes", "nofile": "files", "nproc": "processes"}


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        limits = document.measured.inner("limits")
        low = list(_low(limits, job.nodes[0]))
        return Result(
            NAME,
            TIER,
            job.subject,
            Verdict.FAIL if low else Verdict.PASS,
            printable("; ".join(low), 300),
            Metric("too low", len(low), "limits"),
            _THRESHOLD,
            tuple(_metrics(limits)),
            document.proof,
        )

    return answer(NAME, job, reply, judge)


def _low(limits: Fields, node: Node) -> Iterator[str]:
    memlock, files = _limit(limits, "memlock", "soft"), _limit(limits, "nofile", "hard")
    if infiniband.declared(node.fabric) is not None and memlock != UNLIMITED:
        yield f"locked memory is limited to {memlock} bytes, {node.fabric} needs it unlimited"
    if isinstance(files, int) and files < LEAST_FILES:
        yield f"{files} open files at most, {LEAST_FILES} are needed"
    shm = limits.inner("shm")
    path, error, free = shm.text("path"), shm.maybe_text("error"), shm.whole("free_mb")
    if not node.gpus.real:
        return
    if error is not None:
        yield f"{path}: {printable(error, 80)}"
    elif free < LEAST_SHM_MB:
        yield f"{path}: {free} MiB are free, {LEAST_SHM_MB} are needed"


def _limit(limits: Fields, name: str, which: str) -> int | str:
    """A whole number, or "unlimited"."""
    limit = limits.inner(name)
    if not isinstance(limit.values.get(which), str):
        return limit.whole(which)
    if (text := limit.text(which)) != UNLIMITED:
        raise Unusable(f"{name} is {printable(text, 40)!r}, no limit")
    return text


def _metrics(limits: Fields) -> Iterator[Metric]:
    for name in RESOURCES:
        for which in ("soft", "hard"):
            limit = _limit(limits, name, which)
            unit = "" if limit == UNLIMITED else _UNITS[name]
            yield Metric(f"{name} {which}", limit, unit)
    shm = limits.inner("shm")
    yield Metric("shm type", printable(shm.text("type"), 40))
    yield Metric("shm size", shm.whole("size_mb"), "MiB")
    yield Metric("shm free", shm.whole("free_mb"), "MiB")
