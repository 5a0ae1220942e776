"""The three words that the HealthCheckProgram has with Slurm. Prolog and epilog never import this.

scontrol waits for slurmctld for minutes if that does not answer; slurmd ends the HealthCheckProgram
after 60 s. So each call has a limit.
"""

from __future__ import annotations

from cluster import processes
from cluster.slurm import drain_reasons
from validation.node_health.state import View

LIMIT_S = 10.0


class SlurmError(Exception):
    """One sentence: what Slurm did not do."""


def look(node: str) -> View:
    """Raises SlurmError where Slurm does not say."""
    return parse(_scontrol("-o", "show", "node", node))


def parse(text: str) -> View:
    """One line of `scontrol -o show node`. A reason ends with who set it and when.

    >>> parse("NodeName=n1 State=IDLE+DRAIN Reason=Prolog error [slurm@2026-11-22T06:00:00]")
    View(drained=True, reason='Prolog error')
    """
    try:
        node = drain_reasons.shown(text)
    except ValueError:
        raise SlurmError(f"scontrol says nothing of a state: {text.strip()[:120]}") from None
    return View(node.drained, node.reason)


def drain(node: str, reason: str) -> None:
    _scontrol("update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")


def undrain(node: str) -> None:
    """With RESUME the reason goes too; UNDRAIN would leave it behind."""
    _scontrol("update", f"NodeName={node}", "State=RESUME")


def _scontrol(*arguments: str) -> str:
    try:
        return processes.run(("scontrol", *arguments), LIMIT_S).stdout
    except processes.CommandFailed as error:
        raise SlurmError(str(error)) from None
