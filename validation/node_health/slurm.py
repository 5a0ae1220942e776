"""The three words that the HealthCheckProgram has with Slurm. Prolog and epilog never import this.

scontrol waits for slurmctld for minutes if that does not answer; slurmd ends the HealthCheckProgram
after 60 s. So each call has a limit.
"""

from __future__ import annotations

import re
import subprocess

from cluster.slurm import node_states
from validation.node_health.state import View

LIMIT_S = 10.0
# What is set by slurmd and cron alike is too little to find scontrol where a site builds its own.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin"


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
    state = re.search(r"\bState=(\S+)", text)
    try:
        words = node_states.words(state[1] if state else "")
    except ValueError:
        raise SlurmError(f"scontrol says nothing of a state: {text.strip()[:120]}") from None
    reason = re.search(r"\bReason=(.*?) \[[^\[\]]*@[^\[\]]*\]", text)
    return View(bool(words & node_states.DRAINED), reason[1] if reason else "")


def drain(node: str, reason: str) -> None:
    _scontrol("update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")


def undrain(node: str) -> None:
    """With RESUME the reason goes too; UNDRAIN would leave it behind."""
    _scontrol("update", f"NodeName={node}", "State=RESUME")


def _scontrol(*arguments: str) -> str:
    command = ("scontrol", *arguments)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"slurmctld did not answer within {LIMIT_S:g} s") from None
    except OSError as error:
        raise SlurmError(f"scontrol cannot be started: {error.strerror}") from None
    if done.returncode != 0:
        raise SlurmError(
            " ".join((done.stderr or done.stdout).split()) or "scontrol fails silently"
        )
    return done.stdout
