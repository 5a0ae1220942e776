"""Jobs, from squeue, in columns. Pure functions.

An array's tasks that wait are rows of their own; so are jobs that ended in the last minutes
(MinJobAge), which Slurm counts too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from cluster.hostlist import HostlistError, expand
from roles.slurm_exporter.files.slurm_exporter.words import NOTHING, Nonsense, gpus_of_tres, number

COLUMNS = (
    "JobID", "State", "Partition", "Account", "UserName", "NumCPUs", "NodeList", "tres-alloc",
    "Reason",
)  # fmt: skip
COMMAND = (
    "squeue",
    "--all",
    "--array",
    "--states=all",
    "--noheader",
    "--Format=" + ",".join(f"{column}:|" for column in COLUMNS[:-1]) + ",Reason:",
)

_STATE = re.compile(r"[A-Z][A-Z_]*")
# Slurm puts what it knows more precisely in place of the reason's own word.
_WORD = re.compile(r"[A-Za-z]+(?:[ _][A-Za-z]+)*")
_MEANT = (("Nodes required for job", "Resources"), ("Nodes_required_for_job", "Resources"))


@dataclass(frozen=True)
class QueuedJob:
    """One row. `gpus` is what is allocated, or asked for while the job waits; nodes are allocated.

    A GPU is counted where Slurm accounts it (AccountingStorageTRES=gres/gpu).
    """

    id: str
    state: str
    partition: str
    account: str
    user: str
    cpus: int
    nodes: tuple[str, ...]
    gpus: int
    reason: str

    @property
    def held(self) -> bool:
        return self.reason in ("JobHeldUser", "JobHeldAdmin") or self.reason.endswith("held")

    @property
    def runs(self) -> bool:
        """Slurm shows a job that waits for its nodes to be ready by that, and counts it as both."""
        return self.state in ("RUNNING", "CONFIGURING")


def parse(text: str) -> tuple[QueuedJob, ...]:
    """No row is no job. Raises Nonsense."""
    return tuple(_row(line) for line in text.splitlines() if line.strip())


def _row(line: str) -> QueuedJob:
    cells = [cell.strip() for cell in line.split("|")]
    if len(cells) != len(COLUMNS) or not _STATE.fullmatch(cells[1]):
        raise Nonsense(f"{line[:80]!r} is no row of a job")
    name, state, partition, account, user, cpus, nodes, tres, reason = cells
    return QueuedJob(
        id=name,
        state=state,
        # One that waits may have several; Slurm tries them in this order.
        partition=partition.split(",")[0],
        account="" if account in NOTHING else account,
        user=user,
        cpus=int(number(cpus)),
        nodes=_nodes(nodes),
        gpus=gpus_of_tres(tres),
        reason=word(reason),
    )


@lru_cache(maxsize=1024)
def _nodes(text: str) -> tuple[str, ...]:
    if text in NOTHING:
        return ()
    try:
        return tuple(dict.fromkeys(expand(text)))
    except HostlistError as error:
        raise Nonsense(str(error)) from None


def word(reason: str) -> str:
    """The reason without what differs from job to job: nodes, numbers, times.

    >>> word("ReqNodeNotAvail, UnavailableNodes:gpu3")
    'ReqNodeNotAvail'
    """
    meaning = next((word for start, word in _MEANT if reason.startswith(start)), None)
    if meaning is None:
        match = _WORD.match(reason.strip("()"))
        meaning = match[0] if match else "None"
    return meaning[:60]
