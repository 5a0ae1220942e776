"""The measure of what parts cost: the CPU time of an Ansible that has nothing to do.

A busy machine lends less of a core in a CPU-second (measured: 2.6 times less beside a load of 37),
so the yardstick is measured again and again during a run, and each part has those of its own time.

    python3 -m tests.runner.yardstick     measures once more
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.runner.results import LOGS

NOTED = LOGS / "yardsticks"
# A part that uses more CPU-seconds than this measures one when it ends.
WORTH_ONE = 10.0

EMPTY = "- hosts: localhost\n  gather_facts: false\n  tasks: []\n"


@dataclass(frozen=True, slots=True)
class Yardstick:
    """CPU-seconds of one empty playbook, and when it ran."""

    at: float
    seconds: float


def of_children() -> float:
    """CPU-seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def empty_playbook() -> float:
    """Without the project's ansible.cfg, whose plugins would be measured with it."""
    with tempfile.TemporaryDirectory(prefix="plumbline-yardstick-") as folder:
        playbook = Path(folder) / "empty.yml"
        playbook.write_text(EMPTY, encoding="utf-8")
        settings = playbook.with_name("ansible.cfg")
        settings.touch()
        before = of_children()
        subprocess.run(
            ["ansible-playbook", "--inventory=localhost,", str(playbook)],
            env=os.environ | {"ANSIBLE_CONFIG": str(settings)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return of_children() - before


def note(path: Path = NOTED) -> None:
    measured = empty_playbook()
    with path.open("a", encoding="ascii") as file:
        file.write(f"{time.time():.1f}\t{measured:.3f}\n")


def read(path: Path = NOTED) -> list[Yardstick]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="ascii").splitlines()
    return [Yardstick(*map(float, line.split("\t"))) for line in lines]


if __name__ == "__main__":
    note()
