"""What job-report and its service say to each other: a line of JSON each way.

{"job": "4711"} is answered with one of {"measured": …}, {"refused": SENTENCE}, {"busy": SENTENCE}.
{"gpu_hours": [BEGIN, END]} is answered with {"gpu_hours": {ACCOUNT: [MEASURED, BUSY]}} or as above.
{"check": true} is answered with {"checked": {PART: "" or SENTENCE}}. Who asks is never said: the
kernel tells it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cluster.text import printable
from roles.job_report.files.job_report.efficiency import GpuHours
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.files.job_report.usage import Gpus, GpuUse, Measured

SOCKET = Path("/run/plumbline-job-report.socket")
QUESTION = 256  # bytes, at most
ANSWER = 2**24  # of some thousand GPUs


def line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def read_line(connection: socket.socket, longest: int) -> Mapping[str, Any]:
    """Raises OSError, and ValueError for what is no such line."""
    read = b""
    while not read.endswith(b"\n"):
        if len(read) > longest or not (part := connection.recv(65536)):
            raise ValueError("the line has no end")
        read += part
    document = json.loads(read)
    if not isinstance(document, dict):
        raise ValueError("it is no object")
    return document


def packed(measured: Measured) -> dict[str, Any]:
    return asdict(measured)


def unpacked(document: Mapping[str, Any]) -> Measured:
    """Raises NotKnown for what is no answer."""
    try:
        gpus = document["gpus"]
        cpus_busy = document["cpus_busy"]
        return Measured(
            None if cpus_busy is None else float(cpus_busy),
            None if gpus is None else Gpus(tuple(map(_gpu, gpus["each"])), printable(gpus["how"])),
            tuple(printable(sentence) for sentence in document["not_known"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotKnown(
            f"The service of job-report answers with something else: {error!r}."
        ) from None


def unpacked_hours(document: Any) -> GpuHours:
    """Raises NotKnown for what is no answer."""
    try:
        return {
            printable(name): (float(counted), float(busy))
            for name, (counted, busy) in document.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise NotKnown(
            f"The service of job-report answers with something else: {error!r}."
        ) from None


def _gpu(fields: Mapping[str, Any]) -> GpuUse:
    def number(name: str) -> float | None:
        return None if fields[name] is None else float(fields[name])

    return GpuUse(
        printable(fields["node"]),
        printable(fields["gpu"]),
        printable(fields["instance"]),
        number("busy"),
        number("busy_peak"),
        number("memory_peak_mb"),
        number("memory_mb"),
        number("watts"),
    )
