"""A notebook that was submitted and is not there yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roles.jupyterhub.files.portal.request import Refused
from roles.jupyterhub.files.portal.states import Job


@dataclass
class Starting:
    """What its job and Slurm said of it; `said` are the sentences for the page that waits."""

    job_id: str = ""
    port: int = 0
    problem: str = ""
    said: list[str] = field(default_factory=list)

    def told(self, document: Mapping[str, Any]) -> bool:
        """Takes what the job says: its port, or why it cannot start. False if it is neither."""
        port, problem = document.get("port"), document.get("problem")
        if isinstance(port, int) and not isinstance(port, bool) and 1024 <= port <= 65535:
            self.port = port
            return True
        if isinstance(problem, str) and problem.strip():
            self.problem = " ".join(problem.split())[:500]
            return True
        return False

    def place(self, job: Job, seconds: float, patience: float) -> str:
        """Where the notebook listens, such as gpu1:43210; empty while it may still come.

        `seconds` is how long it has been waited for, `patience` how long it may wait in the queue.
        Raises Refused with a sentence once it will not come.
        """
        if self.problem:
            raise Refused(self.problem)
        if job.runs and self.port:
            return f"{job.host}:{self.port}"
        if job.never:
            raise Refused(f"The job cannot start: {job.never}")
        if not (job.waits or job.runs or job.unknown):
            raise Refused(job.ended)
        if job.waits and seconds > patience:
            minutes = int(patience // 60)
            raise Refused(f"{job.waiting} After {minutes} minutes the portal cancelled it.")
        self._say(job)
        return ""

    def _say(self, job: Job) -> None:
        if job.unknown:
            text = "Slurm does not answer; the portal asks again."
        elif job.waits:
            text = job.waiting
        else:
            text = f"Job {self.job_id} runs on {job.host}; the notebook starts there."
        if not self.said or self.said[-1] != text:
            self.said.append(text)


def refusal(stderr: str) -> str:
    """What sbatch printed, as a sentence: its own last one, without its prefix."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    text = lines[-1] if lines else "sbatch did not say why"
    for prefix in ("sbatch: ", "error: ", "fatal: "):
        text = text.removeprefix(prefix)
    return f"Slurm does not take the job: {text}"
