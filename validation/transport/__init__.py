"""How a run reaches a login node: one operation, `run` a shell script there.

All else is built from it (`slurm/client.py`): the same scripts run on this machine (`here`) or,
through ansible-runner, on a host of the inventory (`inventory`).
"""

from typing import Protocol

from cluster.processes import Completed


class Transport(Protocol):
    @property
    def via(self) -> str:
        """Which machine scripts run on, and how it is reached: for the report."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What went differently from expected on the way there: for the report."""
        ...

    def run(self, script: str, stdin: bytes = b"", timeout_s: float = 60) -> Completed:
        """Run a POSIX shell script. Raises TransportError when it did not run to its end."""
        ...

    def elsewhere(self) -> "Transport | None":
        """The way to another login node of the same cluster; None where there is none."""
        ...
