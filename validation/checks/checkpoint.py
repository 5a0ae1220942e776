"""A training is written to the shared filesystem by all ranks, and then killed.

What it checks   The first half of a group's nodes trains a model whose parameters and optimizer are
                 sharded over all ranks, and writes a checkpoint with torch.distributed.checkpoint
                 to the first declared shared filesystem. All ranks see one folder there, and enough
                 is free. The losses and parameters equal the reference, bit by bit where the ranks
                 compute alike. Every process then ends by SIGKILL. `resume` loads what was written.
Why it matters   Large trainings live from checkpoints: each of them is killed sooner or later.
What to do       Not the same filesystem: compare the mounts of the named node with the others'. Too
                 little free: remove files, or declare another filesystem first in
                 validation_shared_filesystems.
                 $ ssh {node} 'findmnt; df -h'
"""

from collections.abc import Sequence
from typing import TypeVar

from validation.checks import restart, transport
from validation.checks.document import Document, Unusable
from validation.checks.together import Judged, answer
from validation.model import Job, Metric, Reply, Result, Tier
from validation.thresholds import Rules

NAME = "checkpoint"
TIER = Tier.CLUSTER
PAYLOAD = "checkpoint"

SHARED = (restart, transport)

SIGNAL = "SIGKILL"

Item = TypeVar("Item")
_MIB = 1 << 20


def part(nodes: Sequence[Item]) -> Sequence[Item]:
    """Which of a group's nodes write: the first half, two at least where there are two.

    >>> [part("abcde"[:count]) for count in (1, 2, 3, 4, 5)]
    ['a', 'ab', 'ab', 'ab', 'abc']
    """
    return nodes[: max(2, -(-len(nodes) // 2))]


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Judged:
        measured = document.measured
        kept = job.config["kept"]
        assert isinstance(kept, int)
        part = restart.read(job, document, 0, kept)
        if measured.text("ended_by") != SIGNAL:
            raise Unusable(f"the processes ended by {measured.text('ended_by')!r}, not {SIGNAL}")
        files = measured.items("files")
        if not files or files[0].text("name") == "":
            raise Unusable("no file was written")
        written = sum(file.whole("bytes") for file in files)
        if strangers := {file.whole("rank") for file in files} - set(range(job.ranks)):
            raise Unusable(f"files of ranks that there are not: {sorted(strangers)[:8]}")
        seconds = measured.number("save_s")
        if written == 0 or seconds <= 0:
            raise Unusable("nothing was written, or in no time")
        more = (
            Metric("written", round(written / _MIB, 3), "MiB"),
            Metric("files", len(files)),
            Metric("time to write", round(seconds, 3), "s"),
        )
        return restart.judge(job, part, rules, more)

    return answer(NAME, job, reply, judge)
