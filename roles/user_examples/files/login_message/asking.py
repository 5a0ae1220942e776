"""Questions to commands, all at once, each of which may stay without an answer.

A login waits for this program, so it and its neighbours import next to nothing: argparse,
dataclasses, pathlib, re, subprocess and typing together took longer than Slurm's answers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

LIMIT_S = 2.0
_POLL_S = 0.002


def ask(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], limit_s: float = LIMIT_S
) -> dict[str, str]:
    """What each printed that ended well and in time.

    What hangs on a dead filesystem cannot be killed, so it is not waited for either.
    """
    outputs = {name: os.memfd_create(name) for name in commands}
    running = {}
    for name, command in commands.items():
        try:
            running[name] = _start(command, environment, outputs[name])
        except OSError:  # it is not installed here
            continue
    answers = {}
    until = time.monotonic() + limit_s
    while running and time.monotonic() < until:
        for name, process in list(running.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                del running[name]
            if ended and status == 0:
                size = os.lseek(outputs[name], 0, os.SEEK_END)
                answers[name] = os.pread(outputs[name], size, 0).decode(errors="replace")
        time.sleep(_POLL_S if running else 0)
    for process in running.values():
        os.killpg(process, 9)
    return answers


def _start(command: Sequence[str], environment: Mapping[str, str], output: int) -> int:
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    return os.posix_spawnp(command[0], [*command], environment, file_actions=files, setsid=True)
