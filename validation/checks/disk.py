"""A node's local disk keeps what is written to it.

What it checks   a file in the job's temporary folder (TMPDIR, or /tmp) is written, synced and read
                 back past the page cache where the filesystem allows that: every byte is what was
                 written, and no call fails. Its speed is judged where a threshold is given, and
                 reported everywhere
Why it matters   checkpoints, caches and data sets are staged there; a drive that returns other data
                 than it was given spoils a training without an error
What to do       Wrong bytes or an I/O error: take the node out of service and replace the drive.
                 Read-only: the kernel saw errors before. Slow: look at the drive's wear, at what
                 else writes, and whether it is the drive that you meant.
                 $ ssh {node} 'findmnt -T /tmp; df -h /tmp'
                 $ ssh {node} 'dmesg | grep -i -e "I/O error" -e remount -e nvme'
"""

from validation.checks import host
from validation.checks.document import Document, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Tier, printable
from validation.payloads.disk import BLOCK, DIRECT, DROPPED, IN_MEMORY
from validation.thresholds import Rules

NAME = "disk"
TIER = Tier.NODE
PAYLOAD = host.PAYLOAD

WRITE, READ = "disk write", "disk read"
_UNJUDGED = {
    DIRECT: "",
    DROPPED: "the filesystem has no way round the page cache: how fast the disk is cannot be told",
    IN_MEMORY: "the temporary folder is kept in memory: there is no disk to be measured",
}


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        found = host.part(document, "disk")
        folder, size, wrong = found.text("folder"), found.whole("bytes"), found.whole("wrong")
        if (error := found.maybe_text("error")) is not None:
            raise Unusable(f"{printable(folder, 80)}: {printable(error, 160)}")
        cache = found.text("cache")
        if cache not in _UNJUDGED:
            raise Unusable(f"cache is {cache!r}, none of {', '.join(_UNJUDGED)}")
        if size == 0 or size % BLOCK or wrong > size:
            raise Unusable(f"{wrong} wrong bytes in a file of {size}")
        speeds = [
            host.speed(WRITE, size, found.number("write_s")),
            host.speed(READ, size, found.number("read_s")),
        ]
        metrics = [
            Metric("disk file", size // 2**20, "MiB"),
            Metric("disk page cache", cache),
            Metric("disk filesystem", printable(found.text("type"), 40)),
            Metric("disk source", printable(found.text("source"), 80)),
            Metric("disk free", found.whole("free_mb"), "MiB"),
        ]
        unjudged = _UNJUDGED[cache]
        return host.concluded(NAME, job, document, rules, wrong, speeds, metrics, unjudged)

    return answer(NAME, job, reply, judge)
