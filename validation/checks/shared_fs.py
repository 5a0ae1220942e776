"""The declared shared filesystems are mounted, and the job's user can use them.

What it checks   Each path in validation_shared_filesystems answers in time and is on a mount of its
                 own, not an empty folder on the node's root filesystem. What the user writes there
                 (or in the home below it) is read back unchanged. Type, source and inode are
                 recorded; they show whether nodes have the same filesystem. A local filesystem type
                 is a warning, and so is an answer that takes half of the time limit.
Why it matters   Jobs on a node without the mount lose their output or fill the root filesystem. If
                 the file server hangs, every job that uses it hangs.
What to do       Not mounted: mount it, and find out why it was not mounted at boot. No answer:
                 check the server and the network to it. Not writable: declare a folder in which
                 users may write, such as the parent of their homes. A local type: it is not a
                 shared filesystem, unless this node is the server. Another error: the kernel's log
                 says more about it.
                 $ ssh {node} 'findmnt; systemctl --failed'
                 $ ssh {node} 'dmesg | grep -i -e nfs -e lustre'
"""

from collections.abc import Iterator

from cluster.text import printable
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When, worst
from validation.thresholds import Rules

NAME = "shared_fs"
TIER = Tier.NODE
PAYLOAD = "host"

CAUSES = {
    "Not mounted": When(
        r"nothing is mounted|No such file", ("ssh {node} 'findmnt; systemctl --failed'",)
    ),
    "No answer": When(
        r"did not answer|to answer|Stale", ("ssh {node} 'dmesg | grep -i -e nfs -e lustre'",)
    ),
    "Another error": When(
        r"^/\S+: (?!nothing is mounted|cannot be written|\w+ is the filesystem|took .* to answer|"
        r".*(?:No such file|did not answer|Stale))",
        ("ssh {node} 'findmnt; systemctl --failed'", "ssh {node} 'sudo dmesg -T | tail -50'"),
    ),
    "Not writable": When(r"cannot be written", ("ssh {node} findmnt",)),
    "A local type": When(r"filesystem of a local disk", ("ssh {node} findmnt",)),
}

# What no other machine can have mounted too.
LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "ramfs", "overlay")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    declared = job.nodes[0].shared_filesystems
    threshold = Threshold("=", len(declared), "filesystems", "declared", "inventory")

    def judge(document: Document) -> Result:
        items = document.measured.items("shared_filesystems")
        paths = tuple(item.text("path") for item in items)
        if not declared or paths != declared:
            raise Unusable(f"the answer is about {', '.join(paths) or 'none'}, not as declared")
        limit = document.measured.number("limit_s")
        verdicts, problems, metrics = [], [], []
        for item in items:
            verdict, why = _judged(item, limit)
            verdicts.append(verdict)
            problems += [f"{item.text('path')}: {why}"] if why else []
            metrics += list(_metrics(item))
        usable = sum(verdict.green for verdict in verdicts)
        return Result(
            NAME,
            TIER,
            job.subject,
            worst(verdicts),
            printable("; ".join(problems), 300),
            Metric("usable", usable, "filesystems"),
            threshold,
            tuple(metrics),
            document.proof,
        )

    return answer(NAME, job, reply, judge)


def _judged(item: Fields, limit_s: float) -> tuple[Verdict, str]:
    """The verdict on one of them, and why it is no pass."""
    seconds = item.number("seconds")
    if seconds < 0:
        raise Unusable(f"{item.text('path')}: answered after {seconds:g} s")
    if (error := item.maybe_text("error")) is not None:
        return Verdict.FAIL, printable(error or "no reason given", 80)
    mount = item.inner("found")
    kind, written = mount.text("type"), mount.maybe_text("written")
    if mount.text("point") == "/":
        return Verdict.FAIL, "nothing is mounted there, it is a folder of the node's own root"
    if (error := mount.maybe_text("write_error")) is not None:
        return Verdict.FAIL, f"cannot be written to: {printable(error, 80)}"
    if written is None:
        raise Unusable(f"{item.text('path')}: neither written to nor a reason why not")
    if kind in LOCAL:
        return Verdict.WARN, f"{kind} is the filesystem of a local disk"
    if seconds > limit_s / 2:
        return Verdict.WARN, f"took {seconds:.1f} s to answer, of {limit_s:g} s at most"
    return Verdict.PASS, ""


def _metrics(item: Fields) -> Iterator[Metric]:
    path = item.text("path")
    yield Metric(f"{path} seconds", round(item.number("seconds"), 3), "s")
    if item.has("found"):
        mount = item.inner("found")
        yield Metric(f"{path} type", printable(mount.text("type"), 40))
        yield Metric(f"{path} source", printable(mount.text("source"), 120))
        yield Metric(f"{path} inode", mount.whole("inode"))
        yield Metric(f"{path} size", mount.whole("size_mb"), "MiB")
        yield Metric(f"{path} free", mount.whole("free_mb"), "MiB")
