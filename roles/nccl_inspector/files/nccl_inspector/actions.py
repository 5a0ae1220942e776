"""What is done about a job that hangs. What the job's user can write reaches no shell."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster import processes
from roles.nccl_inspector.files.nccl_inspector.folders import JobFolder
from roles.nccl_inspector.files.nccl_inspector.hangs import Odd

ACTIONS = ("observe", "mail", "requeue")
LIMIT_S = 30.0
Run = Callable[[Sequence[str], str], None]


class Undone(Exception):
    """One sentence: why an action was not done."""


def run(command: Sequence[str], text: str) -> None:
    """Raises Undone."""
    try:
        environment = {"LC_ALL": "C", "PATH": os.environ.get("PATH") or processes.DAEMON_PATH}
        processes.run(
            command, LIMIT_S, stdin=text.encode(), environment=environment, own_session=True
        )
    except processes.CommandFailed as error:
        raise Undone(str(error)) from None


@dataclass(frozen=True)
class Action:
    """`name` is one of ACTIONS."""

    name: str
    mail_program: str
    run: Run = run

    def do(self, job: JobFolder, odd: Sequence[Odd], seconds: float) -> str:
        """What was done, in words. Raises Undone."""
        if self.name == "mail":
            user = _user(job.owner)
            subject = f"Slurm job {job.job} hangs"
            self.run([self.mail_program, "-s", subject, user], _letter(job, odd, seconds))
            return f"told {user}"
        if self.name == "requeue":
            self.run(["scontrol", "requeue", job.job], "")
            return "requeued it"
        return "nothing was done"


def sentence(job: JobFolder, odd: Sequence[Odd], seconds: float) -> str:
    ranks = "; ".join(f"rank {one.rank} on {one.place or '?'} {one.why}" for one in odd)
    return f"job {job.job} hangs: no collective was launched for {seconds:.0f} s; {ranks}"


def _letter(job: JobFolder, odd: Sequence[Odd], seconds: float) -> str:
    ranks = "\n".join(f"  rank {one.rank} on {one.place or '?'} {one.why}" for one in odd)
    return (
        f"Your Slurm job {job.job} has launched no collective for {seconds:.0f} seconds,"
        f" and its ranks wait for each other:\n\n{ranks}\n\n"
        f"If it does not go on, end it with: scancel {job.job}\n"
    )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        raise Undone(f"user {number} has no name on this node") from None
