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

from validation.payloads.errors import first_line

_POLL_S = 0.01
_KILLED_S = 2.0  # how long a killed process may take to be gone

Work = Callable[[], Any]


@dataclass(frozen=True)
class Ended:
    """What became of the work: an answer, or the error in place of one, and after how long."""

    answer: Any
    error: str | None
    seconds: float


def run(works: Sequence[Work], limit_s: float) -> list[Ended]:
    """Does all works at once. Each returns what JSON can carry, or raises; an OSError is told by
    its own words.

    Takes at most `limit_s` and two seconds more.
    """
    started = time.monotonic()
    children = [_start(work) for work in works]
    ends: dict[int, float] = {}  # seconds, by the child's place

    def look() -> None:
        for place, (process, _) in enumerate(children):
            if place not in ends and os.waitpid(process, os.WNOHANG)[0]:
                ends[place] = round(time.monotonic() - started, 3)

    while len(ends) < len(children) and time.monotonic() - started < limit_s:
        look()
        time.sleep(_POLL_S)
    look()
    late = [place for place in range(len(children)) if place not in ends]
    for place in late:
        _kill(children[place][0])
    answers = []
    for place, (_, output) in enumerate(children):
        said = _read(output)
        if place in late:
            answers.append(Ended(None, f"did not answer within {limit_s:g} s", limit_s))
        else:
            answers.append(Ended(said.get("answer"), said.get("error"), ends[place]))
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
            said = {"answer": work()}
        except OSError as error:
            said = {"error": error.strerror or str(error)}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {first_line(error)}"}
        os.write(output, json.dumps(said).encode())
        status = 0
    finally:
        os._exit(status)


def _read(output: int) -> dict[str, Any]:
    with os.fdopen(output, "rb") as stream:
        stream.seek(0)
        text = stream.read()
    with suppress(ValueError):
        said = json.loads(text)
        if isinstance(said, dict):
            return said
    return {"error": "its process was killed, or ended without an answer"}


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    until = time.monotonic() + _KILLED_S
    while time.monotonic() < until and not os.waitpid(process, os.WNOHANG)[0]:
        time.sleep(_POLL_S)
