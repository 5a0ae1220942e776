"""Times as Slurm's commands take and print them: local, to the second."""

from __future__ import annotations

from datetime import datetime


def moment(seconds: float) -> str:
    """A time since the epoch, for --starttime and the like."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%dT%H:%M:%S")


def parsed(text: str) -> float | None:
    """Seconds since the epoch; None for Slurm's words, such as Unknown, and for 0.

    SLURM_TIME_FORMAT=%s has seconds printed, which no change to summer time makes ambiguous.

    >>> parsed("1795000000")
    1795000000.0
    >>> parsed("Unknown") is None
    True
    """
    if text.isdigit():
        return float(text) or None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
