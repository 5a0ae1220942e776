"""What came of a check."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.text import printable

PASS, FAIL, WARN, UNKNOWN, SKIP = "pass", "fail", "warn", "unknown", "skip"
_LONGEST = 200  # of a reason, in characters: sinfo -R and squeue have one line for it


@dataclass(frozen=True)
class Outcome:
    """verdict is one of

    pass      all is well
    warn      worth a look, no reason to take the node out of service
    fail      what `on_fail` is for
    unknown   could not be found out, by no fault of the node
    skip      does not apply, by declaration
    """

    verdict: str
    text: str = ""

    @property
    def failed(self) -> bool:
        return self.verdict == FAIL


def reason(check: str, text: str) -> str:
    """A reason as Slurm shows it: machines read up to the bracket, people after it.

    >>> reason("munge", "munged does not answer")
    '[plumbline:munge] munged does not answer'
    """
    # scontrol ends a reason at a quote, and prints one of several lines as several.
    return printable(f"[plumbline:{check}] {text}".replace('"', "'"), _LONGEST)
