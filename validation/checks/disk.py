"""A node's local disk returns what was written to it.

What it checks   A file in the job's temporary folder (TMPDIR, or /tmp) is written, synced and read
                 back, bypassing the page cache if the filesystem allows it. Every byte is as
                 written, and no call fails. The speed is always reported. It is held against
                 what any local disk does, and against a threshold of yours if there is one.
Why it matters   Checkpoints, caches and data sets are stored there. A drive that returns wrong data
                 spoils a training without an error.
What to do       Wrong bytes or an I/O error: take the node out of service and replace the drive.
                 Read-only: the kernel has found errors before. Slow: check the drive's wear, what
                 else writes to it, and whether it is the drive that you meant.
                 No speed known: the file stayed in memory; set TMPDIR to a folder on a disk.
                 $ ssh {node} 'findmnt -T /tmp; df -h /tmp'
                 $ ssh {node} 'dmesg | grep -i -e "I/O error" -e remount -e nvme'
"""

from cluster.text import printable
from validation.checks import host
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Tier, When
from validation.payloads.disk import BLOCK, DIRECT, DROPPED, IN_MEMORY
from validation.thresholds import Rules

NAME = "disk"
TIER = Tier.NODE
PAYLOAD = host.PAYLOAD

CAUSES = {
    "Wrong bytes or an I/O error": When(
        r"bytes came back|[Ee]rror",
        ("ssh {node} 'dmesg | grep -i -e \"I/O error\" -e remount -e nvme'",),
    ),
    "Read-only": When(
        r"[Rr]ead-only", ("ssh {node} 'dmesg | grep -i -e \"I/O error\" -e remount -e nvme'",)
    ),
    "No speed known": When(
        r"cannot be bypassed|no disk to measure", ("ssh {node} 'findmnt -T /tmp; df -h /tmp'",)
    ),
    "Slow": When(r"are needed|any machine does", ("ssh {node} 'findmnt -T /tmp; df -h /tmp'",)),
}

WRITE, READ = "disk write", "disk read"
_UNJUDGED = {
    DIRECT: "",
    DROPPED: "the page cache cannot be bypassed, so the disk's speed is not known",
    IN_MEMORY: "the temporary folder is in memory, so there is no disk to measure",
}


def _cache(disk: Fields) -> str:
    cache = disk.text("cache")
    if cache not in _UNJUDGED:
        raise Unusable(f"cache is {cache!r}, none of {', '.join(_UNJUDGED)}")
    return cache


def direct(disk: Fields) -> bool:
    """Whether what was written and read went past the page cache, to a disk."""
    return _cache(disk) == DIRECT


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        disk = host.part(document, "disk")
        folder, size, wrong = disk.text("folder"), disk.whole("bytes"), disk.whole("wrong")
        if (error := disk.maybe_text("error")) is not None:
            raise Unusable(f"{printable(folder, 80)}: {printable(error, 160)}")
        unjudged = _UNJUDGED[_cache(disk)]
        if size == 0 or size % BLOCK or wrong > size:
            raise Unusable(f"{wrong} wrong bytes in a file of {size}")
        speeds = [
            host.speed(WRITE, size, disk.number("write_s")),
            host.speed(READ, size, disk.number("read_s")),
        ]
        metrics = [
            Metric("disk file", size // 2**20, "MiB"),
            Metric("disk page cache", _cache(disk)),
            Metric("disk filesystem", printable(disk.text("type"), 40)),
            Metric("disk source", printable(disk.text("source"), 80)),
            Metric("disk free", disk.whole("free_mb"), "MiB"),
        ]
        floor = rules.common.limits["disk_gbs"]
        floors = {WRITE: floor, READ: floor}
        return host.concluded(NAME, job, document, rules, wrong, speeds, metrics, unjudged, floors)

    return answer(NAME, job, reply, judge)
