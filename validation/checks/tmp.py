"""Jobs can write on a node: /tmp and slurmd's own folder.

What it checks   /tmp is writable and has free space. slurmd's spool folder exists, is not mounted
                 read-only, and has free space.
Why it matters   If /tmp is full or read-only, jobs fail with misleading messages. Without its spool
                 folder slurmd starts no job.
What to do       Read-only: the kernel found errors on the disk; its log names it. Full: find what
                 fills it, usually files of jobs that ended long ago. Not writable: the folder is
                 missing, or its owner or mode is wrong.
                 $ ssh {node} 'df -h /tmp /var/spool; findmnt -T /tmp'
                 $ ssh {node} 'dmesg | grep -i -e "I/O error" -e remount'
"""

from validation.checks.document import Document, Fields, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "tmp"
TIER = Tier.NODE
PAYLOAD = "node"

CAUSES = {
    "Read-only": When(
        r"[Rr]ead-only|[Ee]rror", ("ssh {node} 'dmesg | grep -i -e \"I/O error\" -e remount'",)
    ),
    "Not writable": When(
        r"^/\S+: (?!.*(?:[Rr]ead-only|[Ee]rror|No space|MB are free))", ("ssh {node} ls -ld /tmp",)
    ),
    "Full": When(r"MB are free|No space", ("ssh {node} 'df -h /tmp /var/spool; findmnt -T /tmp'",)),
}

_ROOM = Threshold("≥", 100, "MB", "defined", "less fails the first job that writes a file")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        folders = [document.measured.inner("tmp")]
        if document.measured.has("spool"):
            folders.append(document.measured.inner("spool"))
        free = min(folder.whole("free_mb") for folder in folders)
        problems = [problem for folder in folders if (problem := _problem(folder))]
        verdict = Verdict.FAIL if problems else _ROOM.judge(free)
        return Result(
            NAME,
            TIER,
            job.subject,
            verdict,
            "; ".join(problems),
            Metric("free", free, "MB"),
            _ROOM,
            tuple(Metric(f"free {f.text('path')}", f.whole("free_mb"), "MB") for f in folders),
            document.proof,
        )

    return answer(NAME, job, reply, judge)


def _problem(folder: Fields) -> str:
    path, error = folder.text("path"), folder.maybe_text("error")
    if error:
        return f"{path}: {error}"
    free = folder.whole("free_mb")
    return "" if _ROOM.judge(free).green else f"{path}: {free} MB are free"
