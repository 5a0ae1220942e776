"""What one node has: CPUs, memory, GPUs, clock, and whether MUNGE works here.

Standard library only: the node must answer even where torch is missing or broken. Runs with one
task on one node, in well under a second.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from validation.payloads.rendezvous import node_name

MUNGE_TIMEOUT_S = 5
_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Config:
    """munge_credential: made on another node, to be decoded on this one; None decodes nothing."""

    munge_credential: str | None = None


@dataclass(frozen=True)
class Gpu:
    index: int
    name: str
    uuid: str
    memory_mb: int


def proof(environ: Mapping[str, str]) -> dict[str, Any]:
    return {"host": node_name(environ), "python": platform.python_version()}


def measure(
    config: Config, dev: Path = Path("/dev"), meminfo: Path = Path("/proc/meminfo")
) -> dict[str, Any]:
    """The node's inventory.

    cpus             online CPUs of the node, whatever the job may use; cpus_allowed is what it may
    memory_mb        MemTotal in MiB, as slurmd counts RealMemory
    gpu_device_nodes character devices /dev/nvidia<number>; they exist without a driver too
    gpus, nvml       what NVML says, or [] and why it could not be asked
    munge_*          a fresh credential, and how the given one decoded; errors beside them
    time_ns          this node's clock, read last so that little lies between it and the answer
    """
    gpus, nvml_error = _gpus()
    encoded, encode_error = _encode()
    decoded, decode_error = _decode(config.munge_credential)
    return {
        "hostname": socket.gethostname(),
        "cpus": os.sysconf("SC_NPROCESSORS_ONLN"),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "memory_mb": _memory_mb(meminfo),
        "gpu_device_nodes": _gpu_device_nodes(dev),
        "gpus": [asdict(gpu) for gpu in gpus],
        "nvml": nvml_error,
        "munge_encoded": encoded,
        "munge_encode_error": encode_error,
        "munge_decoded": decoded,
        "munge_decode_error": decode_error,
        "time_ns": time.time_ns(),
    }


def _memory_mb(meminfo: Path) -> int:
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if match := re.fullmatch(r"MemTotal:\s+(\d+) kB", line):
            return int(match[1]) // 1024
    raise RuntimeError(f"{meminfo} has no MemTotal")


def _gpu_device_nodes(dev: Path) -> int:
    return sum(
        1
        for path in dev.glob("nvidia[0-9]*")
        if re.fullmatch(r"nvidia[0-9]+", path.name) and path.is_char_device()
    )


def _gpus() -> tuple[list[Gpu], str | None]:
    """The GPUs NVML sees, or none and the reason why it could not be asked."""
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError as error:
        return [], f"pynvml cannot be imported: {error}"
    try:
        pynvml.nvmlInit()
        try:
            return [_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())], None
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return [], f"NVML: {error}"


def _gpu(pynvml: Any, index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        index=index,
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        memory_mb=pynvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB,
    )


def _text(value: str | bytes) -> str:
    # pynvml before 11.5 answers in bytes
    return value.decode() if isinstance(value, bytes) else value


def _encode() -> tuple[str | None, str | None]:
    """A credential made on this node, or None and why not."""
    answer, error = _run(["munge", "-n"], "")
    if answer is None:
        return None, error
    if answer.returncode != 0:
        return None, _complaint("munge", answer)
    return answer.stdout.strip(), None


def _decode(credential: str | None) -> tuple[str | None, str | None]:
    """What unmunge calls the credential's status, such as "Success (0)", or None and why not."""
    if credential is None:
        return None, None
    answer, error = _run(["unmunge"], credential)
    if answer is None:
        return None, error
    # unmunge prints the status of a credential that it refuses too, and exits non-zero
    if match := re.search(r"^STATUS:\s+(.+?)\s*$", answer.stdout, re.MULTILINE):
        return match[1], None
    return None, _complaint("unmunge", answer)


def _run(
    command: list[str], text: str
) -> tuple[subprocess.CompletedProcess[str] | None, str | None]:
    try:
        answer = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=MUNGE_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return None, f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return None, f"{command[0]} did not answer within {MUNGE_TIMEOUT_S} s"
    except OSError as error:
        return None, f"{command[0]} cannot be started: {error.strerror}"
    return answer, None


def _complaint(program: str, answer: subprocess.CompletedProcess[str]) -> str:
    detail = " ".join(answer.stderr.split()) or "nothing on standard error"
    return f"{program} exited with {answer.returncode}: {detail}"
