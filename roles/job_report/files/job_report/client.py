"""Asks the service of job-report on this host what was measured of a job."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.text import printable
from roles.job_report.files.job_report import protocol
from roles.job_report.files.job_report.efficiency import GpuHours
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.files.job_report.month import Span
from roles.job_report.files.job_report.sacct import AccountedJob
from roles.job_report.files.job_report.usage import Measured

ANSWER_S = 45.0  # more than the service gives itself
BUSY_S = 30.0  # how long it is asked again


def ask(job: AccountedJob, path: Path = protocol.SOCKET) -> Measured:
    """Raises NotKnown."""
    answer = _ask_until({"job": job.shown}, path)
    if "measured" not in answer:
        raise _refused(answer)
    return protocol.unpacked(answer["measured"])


def gpu_hours(day: Span, path: Path = protocol.SOCKET) -> GpuHours:
    """Of a day, by account. Raises NotKnown, also for those who may not ask for others'."""
    answer = _ask_until({"gpu_hours": [day.begin, day.end]}, path)
    if "gpu_hours" not in answer:
        raise _refused(answer)
    return protocol.unpacked_hours(answer["gpu_hours"])


def check(path: Path = protocol.SOCKET) -> Mapping[str, str]:
    """What the service needs, and why it cannot ask that; "" where it can. Raises NotKnown."""
    answer = _ask_until({"check": True}, path)
    if not isinstance(parts := answer.get("checked"), dict):
        raise _refused(answer)
    return {printable(name): printable(str(why)) for name, why in parts.items()}


def _refused(answer: Mapping[str, Any]) -> NotKnown:
    return NotKnown(printable(str(answer.get("refused") or answer.get("busy"))))


def _ask_until(question: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    until = time.monotonic() + BUSY_S
    while "busy" in (answer := _ask(question, path)) and time.monotonic() < until:
        time.sleep(random.uniform(0.2, 0.6))  # not all at once
    return answer


def _ask(question: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        try:
            connection.connect(str(path))
        except FileNotFoundError:
            why = f"Nobody can be asked for GPUs and whole nodes here: there is no {path}."
            raise NotKnown(why) from None
        except BlockingIOError:  # more wait for it than may
            return {"busy": "The service of job-report is busy; ask again."}
        except OSError as error:
            raise NotKnown(f"The service of job-report cannot be asked: {error}.") from None
        try:
            connection.sendall(protocol.line(question))
        except BrokenPipeError:
            pass  # it may have answered all the same
        except OSError as error:
            raise NotKnown(f"The service of job-report cannot be asked: {error}.") from None
        try:
            return protocol.read_line(connection, protocol.ANSWER)
        except (OSError, ValueError) as error:
            raise NotKnown(f"The service of job-report does not answer: {error}.") from None
