"""Runs one part of scripts/test: its output goes to a log, its verdict and its cost to the results.

    python3 -m tests.runner.part [--nodes NAME] PART COMMAND...
    python3 -m tests.runner.part PART --failed SENTENCE

Exit status: 0 it passed, 1 it did not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.runner import results, yardstick
from tests.runner.results import FAILED, LOGS, PASSED, Result
from tests.runner.yardstick import of_children

SHOWN = 60  # lines of the log of a part that failed


def log_of(part: str) -> Path:
    return LOGS / f"{part.replace(' ', '-').replace('/', '-')}.log"


def of_nodes(name: str | None) -> tuple[float, int] | None:
    """CPU-seconds that nodes of this name have used so far, and how often they rebooted.

    None where there are no nodes.
    """
    if name is None:
        return None
    command = ["scripts/virtual-cluster", "cpu", "--name", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    seconds, reboots = done.stdout.split()
    return float(seconds), int(reboots)


def used_between(before: tuple[float, int] | None, after: tuple[float, int] | None) -> float | None:
    """CPU-seconds of nodes; a node that rebooted began at 0 again: what it used is not known."""
    if before is None or after is None or before[1] != after[1]:
        return None
    return after[0] - before[0]


def run(part: str, command: Sequence[str], nodes: str | None = None) -> Result:
    before = of_nodes(nodes)
    begin, used = time.monotonic(), of_children()
    with log_of(part).open("wb") as log:
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PLUMBLINE_PART": part},
                check=False,
            ).returncode
        except OSError as error:
            log.write(f"{error}\n".encode())
            code = 127
    seconds, control = time.monotonic() - begin, of_children() - used
    on_nodes = used_between(before, of_nodes(nodes))
    return Result(part, FAILED if code else PASSED, seconds, control, on_nodes, time.time())


def failed(part: str, sentence: str) -> Result:
    """A part that there was nothing to run of."""
    log_of(part).write_text(f"{sentence}\n", encoding="utf-8")
    return Result(part, FAILED)


def result_text(result: Result) -> str:
    """One line; under that of a part that failed, the end of its log."""
    line = f"{result.part:32} {result.seconds:4.0f} s  {result.verdict}"
    if result.passed:
        return f"{line}\n"
    log = log_of(result.part)
    last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN:]
    return "".join([f"{line}  {log}\n", *(f"    {words}\n" for words in last)])


def main(arguments: Sequence[str]) -> int:
    nodes = None
    if arguments[0] == "--nodes":
        _, nodes, *arguments = arguments
    part, *command = arguments
    result = failed(part, command[1]) if command[0] == "--failed" else run(part, command, nodes)
    results.add(result)
    # In one write, for the same reason.
    sys.stdout.write(result_text(result))
    sys.stdout.flush()
    if result.passed and result.control > yardstick.WORTH_ONE:
        yardstick.note()
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
