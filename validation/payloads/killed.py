"""Work that ends by SIGKILL, as a training does whose node is taken from it.

The task's process does the work in a child. Once the child has reported, it is killed where it
stands: with its group, its threads and its memory, nothing closed and nothing tidied up. Only the
report of a child that really ended so is handed on.
"""

from __future__ import annotations

import os
import signal
import socket
import traceback
from collections.abc import Callable
from typing import NoReturn

from cluster.errors import CannotRun

Report = Callable[[str], NoReturn]


def after(work: Callable[[Report], int]) -> str | None:
    """Runs the work in a child and kills it once it reports; returns what it reported.

    None where the work returned a status other than 0 in the place of a report: it has complained
    itself. Raises CannotRun where the child ended in any other way. To be called before anything
    starts a thread, which a fork would lose.
    """
    ours, its = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        _be_the_child(work, its)
    its.close()
    with ours, ours.makefile("rb") as stream:
        line = stream.readline()
        reported = line.endswith(b"\n")
        if reported:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if reported and code == -signal.SIGKILL:
        return line[:-1].decode()
    if not reported and code > 0:
        return None
    raise CannotRun(
        f"the process that worked ended with {code} "
        + ("although it was killed" if reported else "before it reported")
    )


def _be_the_child(work: Callable[[Report], int], report_to: socket.socket) -> NoReturn:
    def report(text: str) -> NoReturn:
        report_to.sendall(text.encode() + b"\n")
        report_to.recv(1)  # nothing comes; where the parent is gone this ends, and so does all
        os._exit(1)

    status = 1
    try:
        status = work(report) or 1
    except BaseException:
        traceback.print_exc()
    os._exit(status)
