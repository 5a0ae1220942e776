"""The service behind job-report: what was measured of a job, for those whose job it is.

systemd listens and hands over the socket with the first question; without one for a while, the
service ends. Who asks is the user that the kernel names (SO_PEERCRED), and nothing that they say.
Each question has a process of its own, with an end that nothing it waits for can move; one user has
a few at a time, so that no user keeps the others waiting.
"""

from __future__ import annotations

import grp
import os
import signal
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from select import select
from typing import Any, NoReturn

from cluster import prometheus
from roles.job_report.files.job_report import efficiency_ask, protocol, sacct, site, usage
from roles.job_report.files.job_report.errors import NoJob, NotKnown

LISTENING = 3  # the first descriptor that systemd hands over, sd_listen_fds(3)
IDLE_S = 60.0
LIMIT_S = 30.0  # of a question, however many things it waits for
CHECK_S = 10.0  # of each part of a check
QUESTION_S = 5.0  # of the line with the question, and of the one with the answer
TOGETHER = 16
OF_ONE = 2  # of one user; root counts as one
GROUPS_BYTES = 1024  # the most that Python takes: 256 groups
SO_PEERGROUPS = getattr(socket, "SO_PEERGROUPS", 59)

Question = Mapping[str, Any]
Answer = Callable[["Asker", Question], Mapping[str, Any]]


@dataclass(frozen=True)
class Asker:
    """Who connected, as the kernel knows them."""

    uid: int
    groups: frozenset[int]


class TooLong(BaseException):
    """The question's time is over. No Exception: nothing on the way may take it for its own."""


def main(environ: Mapping[str, str]) -> int:
    if environ.get("LISTEN_PID") != str(os.getpid()) or environ.get("LISTEN_FDS") != "1":
        print("This is started by systemd, through plumbline-job-report.socket.", file=sys.stderr)
        return 2
    password = sys.stdin.readline().strip()
    with socket.socket(fileno=LISTENING) as listening:
        serve(listening, lambda asker, of: answer(asker, of, site.settings(password)))
    return 0


def answer(asker: Asker, question: Question, settings: site.Settings) -> Mapping[str, Any]:
    if "check" in question:
        return {"checked": checked(settings)}
    if "gpu_hours" in question:
        return hours_of(asker, question["gpu_hours"], settings)
    return answer_of(asker, str(question["job"]), settings)


def checked(settings: site.Settings) -> Mapping[str, str]:
    """What it needs, and why that cannot be asked; "" where it can."""

    def accounting() -> Mapping[str, Any]:
        sacct.answers()
        return {}

    def metrics() -> Mapping[str, Any]:
        try:
            prometheus.now(settings.server, "1", time.time())
        except prometheus.NoAnswer as error:
            raise NotKnown(str(error)) from None
        return {}

    parts = {"accounting": accounting, "Prometheus": metrics}
    return {name: _in_time(ask, CHECK_S).get("refused", "") for name, ask in parts.items()}


def answer_of(asker: Asker, job: str, settings: site.Settings) -> Mapping[str, Any]:
    """Of a job that is not the asker's, the same as of one that does not exist."""
    try:
        if not sacct.JOB.fullmatch(job):
            raise NotKnown("The question names no job.")
        found = sacct.read_of(job, None if _may_ask_of_all(asker, settings) else asker.uid)
        return {"measured": protocol.packed(usage.measure(found, settings.server, time.time()))}
    except NoJob:
        return {
            "refused": f"GPUs and whole nodes: none of your own jobs is {job}, and what others' "
            "jobs used is for operators."
        }
    except NotKnown as error:
        return {"refused": str(error)}


def hours_of(asker: Asker, day: Any, settings: site.Settings) -> Mapping[str, Any]:
    """GPU-hours of a day by account, which tell of everybody."""
    try:
        if not _may_ask_of_all(asker, settings):
            raise NotKnown("What accounts used is for operators.")
        begin, end = (float(moment) for moment in day)
        return {"gpu_hours": efficiency_ask.gpu_hours(settings.server, begin, end)}
    except NotKnown as error:
        return {"refused": str(error)}


def _may_ask_of_all(asker: Asker, settings: site.Settings) -> bool:
    """Root, whoever Slurm runs as, and the group that the site names."""
    if asker.uid in (0, os.geteuid()):
        return True
    try:
        return bool(settings.operators) and grp.getgrnam(settings.operators).gr_gid in asker.groups
    except KeyError:
        return False


def serve(listening: socket.socket, answer: Answer, idle_s: float = IDLE_S) -> None:
    """Until nobody has asked for a while."""
    listening.setblocking(False)
    asking: dict[int, int] = {}  # users, by the process that answers them
    with _woken_by_children() as woken:
        while True:
            ready, _, _ = select([listening, woken], [], [], None if asking else idle_s)
            with suppress(BlockingIOError):
                woken.recv(4096)
            _bury(asking)
            if not ready and not asking:
                return
            if listening in ready:
                # One may have gone again; the kernel may be short of descriptors for a moment.
                with suppress(OSError):
                    connection, _ = listening.accept()
                    with connection:
                        _take(connection, asking, answer)


@contextmanager
def _woken_by_children() -> Iterator[socket.socket]:
    woken, waking = socket.socketpair()
    with woken, waking:
        woken.setblocking(False)
        waking.setblocking(False)
        before = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        try:
            yield woken
        finally:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, before)


def _bury(asking: dict[int, int]) -> None:
    for process in list(asking):
        if os.waitpid(process, os.WNOHANG)[0]:
            del asking[process]


def _take(connection: socket.socket, asking: dict[int, int], answer: Answer) -> None:
    asker = _asker(connection)
    if len(asking) >= TOGETHER or Counter(asking.values())[asker.uid] >= OF_ONE:
        connection.setblocking(False)  # nobody is waited for here
        whose = "your" if len(asking) < TOGETHER else "others'"
        busy = f"The service of job-report still answers {whose} questions; ask again."
        connection.sendall(protocol.line({"busy": busy}))
        return
    if process := os.fork():
        asking[process] = asker.uid
    else:
        _answer(connection, asker, answer)


def _asker(connection: socket.socket) -> Asker:
    ids = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    _, uid, gid = struct.unpack("iII", ids)
    try:
        groups = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, GROUPS_BYTES)
    except OSError:  # more groups than that: their own jobs are left
        groups = b""
    return Asker(uid, frozenset((gid, *struct.unpack(f"{len(groups) // 4}I", groups))))


def _answer(connection: socket.socket, asker: Asker, answer: Answer) -> NoReturn:
    """In a process of its own, which ends here."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        connection.settimeout(QUESTION_S)
        question = protocol.read_line(connection, protocol.QUESTION)
        result = _in_time(lambda: answer(asker, question))
        print(f"uid {asker.uid} asked {dict(question)}: {next(iter(result))}", file=sys.stderr)
        connection.sendall(protocol.line(result))
        status = 0
    except (KeyError, OSError, ValueError) as error:
        print(f"uid {asker.uid} asked nothing that can be answered: {error!r}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)


def _in_time(
    question: Callable[[], Mapping[str, Any]], limit_s: float | None = None
) -> Mapping[str, Any]:
    """With the sentence in place of an answer that there is not, or not in time."""
    limit_s = LIMIT_S if limit_s is None else limit_s

    def over(*_: object) -> NoReturn:
        raise TooLong

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        return question()
    except TooLong:
        why = f"accounting and Prometheus did not answer within {limit_s:g} s"
        return {"refused": f"GPUs and whole nodes: {why}."}
    except NotKnown as error:
        return {"refused": str(error)}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
