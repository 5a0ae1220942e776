"""What Slurm says of a notebook's job, as sentences for its user."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.slurm.job_reasons import Cause, cause

WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"}
RUNNING = {"RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING"}

# What the user can do about a reason that only a change mends.
ADVICE = {
    "PartitionTimeLimit": "it asks for more time than its partition allows. Choose a shorter time.",
    "BadConstraints": "no node can ever satisfy it. Choose fewer CPUs or GPUs, or less memory.",
    "AccountNotAllowed": "its partition is not for your account. Choose another partition.",
    "QOSNotAllowed": "its partition is not for this QOS. Choose another partition or QOS.",
    "JobHeldAdmin": "an operator holds it. Ask your operator.",
    "JobHeldUser": "it is held. Release it with scontrol release, or stop it.",
    "PartitionDown": "its partition is down. Choose another partition, or try again later.",
    "PartitionInactive": "its partition is inactive. Choose another partition, or try again later.",
}
# A limit of one job does not go away when other jobs end.
OF_ONE_JOB = ("PerJob", "PerJobLimit", "PerNode", "TimeLimit")
# Why it waits, where time helps.
PATIENT = {
    "None": "Slurm has not looked at it yet",
    "Resources": "no such GPU, CPU or memory is free now",
    "Priority": "other jobs come first",
    "BeginTime": "it was queued again and starts soon",
}
WHOSE = {
    Cause.LIMIT: "you or your account reached a limit, so another job of yours must end first",
    Cause.NODE: "a node that it needs is not available",
    Cause.CLUSTER: "Slurm itself is not ready",
}
ENDS = {
    "NODE_FAIL": "its node failed. What you saved is in your files; start a new one.",
    "TIMEOUT": "its time was over. Choose a longer time if you need it.",
    "OUT_OF_MEMORY": "it used more memory than it had. Choose more memory.",
    "CANCELLED": "it was stopped.",
    "PREEMPTED": "a job with a higher priority needed its place.",
    "FAILED": "it failed to start. The file .plumbline-notebook.log in your home may say why.",
    "BOOT_FAIL": "its node did not start. Try again.",
    "COMPLETED": "it ended.",
    "DEADLINE": "it could not end before its deadline.",
}


@dataclass(frozen=True)
class Job:
    """A job as Slurm tells it; `state` is empty where Slurm does not answer."""

    state: str
    reason: str = ""
    host: str = ""
    start: str = ""

    @property
    def waits(self) -> bool:
        """Whether it has not started."""
        return self.state in WAITING

    @property
    def runs(self) -> bool:
        """Whether it is on a node."""
        return self.state in RUNNING

    @property
    def unknown(self) -> bool:
        """Whether Slurm did not answer: nothing was learnt of the job."""
        return not self.state

    @property
    def never(self) -> str:
        """Why it will not start without a change; empty where time helps."""
        if not self.waits:
            return ""
        word = self.reason.split(",")[0]
        whose = cause(self.reason)
        if whose is Cause.REQUEST and word != "Dependency":
            return ADVICE.get(word, f"it cannot be granted as it is ({self.reason}). Choose less.")
        if whose is Cause.LIMIT and word.endswith(OF_ONE_JOB):
            return f"it asks for more than one job may have ({word}). Choose less, or another QOS."
        return ""

    @property
    def waiting(self) -> str:
        """Why it waits, and until when Slurm expects it to."""
        why = PATIENT.get(self.reason) or self.reason or "Slurm does not say why"
        if whose := WHOSE.get(cause(self.reason)):
            why = f"{whose} ({self.reason})"
        text = f"The job waits: {why}."
        if self.start and self.start not in ("N/A", "Unknown"):
            text += f" Slurm expects it to start at {self.start.replace('T', ' ')}."
        return text

    @property
    def ended(self) -> str:
        """How it ended."""
        word = self.state.split(" ")[0]
        where = f" on {self.host}" if self.host and self.host != "None assigned" else ""
        return f"The job{where} ended: {ENDS.get(word, f'Slurm says {word}.')}"


def read(code: int, output: str) -> Job:
    """The job out of what `as_user.query` says."""
    if code:
        return Job("")
    fields = [field.strip() for field in output.strip().split(";")]  # squeue pads them
    state, reason, host, start = (*fields, "", "", "", "")[:4]
    return Job(state, reason, "" if host in ("n/a", "(null)") else host, start)
