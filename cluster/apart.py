"""Work that may hang, each in a process of its own, with a hard time limit for all of it.

A filesystem whose server is gone, a disk that retries for minutes: the call does not return, and
no thread or signal handler gets it back. So the work is done by forked processes; one that is not
done in time is killed with its process group. What sleeps in the kernel and cannot be killed is
left behind. Linux; for a process with one thread.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from cluster.text import first_line

_POLL_S = 0.01
_KILLED_S = 2.0  # how long a killed process may take to be gone

Work = Callable[[], Any]


@dataclass(frozen=True)
class Ended:
    """What became of the work: an answer, or the error in place of one, and after how long."""

    answer: Any
    error: str | None
    seconds: float


def run(works: Sequence[Work], limit_s: float | Sequence[float]) -> list[Ended]:
    """Does all works at once. Each returns what JSON can carry, or raises; an OSError is told by
    its own words.

    `limit_s` is for all of them, or one for each. Takes at most the longest and, where something
    has to be killed, two seconds more.
    """
    limits = [limit_s] * len(works) if isinstance(limit_s, (int, float)) else list(limit_s)
    started = time.monotonic()
    children = [_start(work) for work in works]
    ends: dict[int, float] = {}  # seconds, by the child's place
    late: list[int] = []
    while len(ends) + len(late) < len(children):
        spent = time.monotonic() - started
        for place, (process, _) in enumerate(children):
            if place in ends or place in late:
                continue
            if os.waitpid(process, os.WNOHANG)[0]:
                ends[place] = round(spent, 3)
            elif spent >= limits[place]:
                _kill(process)
                late.append(place)
        time.sleep(_POLL_S)
    _bury([children[place][0] for place in late])
    answers = []
    for place, (_, output) in enumerate(children):
        reply = _read(output)
        if place in late:
            limit = limits[place]
            answers.append(Ended(None, f"did not answer within {limit:g} s", limit))
        else:
            answers.append(Ended(reply.get("answer"), reply.get("error"), ends[place]))
    return answers


def _start(work: Work) -> tuple[int, int]:
    """The process that does the work, and where its answer will be: in memory, a disk may hang."""
    output = os.memfd_create("apart")
    process = os.fork()
    if process == 0:
        _work(work, output)
    return process, output


def _work(work: Work, output: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        try:
            reply = {"answer": work()}
        except OSError as error:
            reply = {"error": error.strerror or str(error)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {first_line(error)}"}
        os.write(output, json.dumps(reply).encode())
        status = 0
    finally:
        os._exit(status)


def _read(output: int) -> dict[str, Any]:
    with os.fdopen(output, "rb") as stream:
        stream.seek(0)
        text = stream.read()
    with suppress(ValueError):
        reply = json.loads(text)
        if isinstance(reply, dict):
            return reply
    return {"error": "its process was killed, or ended without an answer"}


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _bury(processes: Sequence[int]) -> None:
    """What sleeps in the kernel is not gone in time, and is left behind."""
    left, until = list(processes), time.monotonic() + _KILLED_S
    while left and time.monotonic() < until:
        left = [process for process in left if not os.waitpid(process, os.WNOHANG)[0]]
        time.sleep(_POLL_S)
