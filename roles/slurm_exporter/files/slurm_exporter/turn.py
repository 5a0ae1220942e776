"""Which of several controllers tells: the first that answers, for that one is active.

Slurm asks them in the order of SlurmctldHost too. A backup answers a ping while it waits, and so
only its place says that it waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from cluster.exporter import Collector, Failed, Family, gauge
from roles.slurm_exporter.files.slurm_exporter.words import Nonsense

COMMAND = ("scontrol", "ping")
NAME = "turn"
_ANSWER = re.compile(r"^Slurmctld\(\w+\) at (\S+) is (UP|DOWN)$", re.MULTILINE)


def active(text: str, own: str) -> bool:
    """Whether the controller of this name is the first that answers. Raises Failed where it does
    not answer at all, so that another's taking over hides nothing.

    >>> active("Slurmctld(primary) at ctl1 is DOWN\\nSlurmctld(backup) at ctl2 is UP\\n", "ctl2")
    True
    """
    answers: Mapping[str, str] = dict(_ANSWER.findall(text))
    if own not in answers:
        raise Nonsense(f"scontrol ping does not name {own}: {text.strip()[:80]!r}")
    if answers[own] == "DOWN":
        raise Failed(f"slurmctld of {own} does not answer scontrol ping")
    up = [name for name, state in answers.items() if state == "UP"]
    return up[:1] == [own]


def collector(mine: bool | Failed) -> Collector:
    """That it stands by is told as well: silence would look like a fault."""

    def told() -> Iterator[Family]:
        if isinstance(mine, Failed):
            raise mine
        text = "Whether this controller is the first that answers, and tells of Slurm."
        yield gauge("slurm_exporter_active", text, float(mine))

    return Collector(NAME, told)
