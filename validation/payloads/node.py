"""What one node has: CPUs, memory, GPUs, clock, room on its disks, and whether MUNGE works here.

Standard library only: the node must answer even where torch is missing or broken; whether it can be
imported is tried in a process of its own, and NVML, which may never answer, is asked by others.
Runs with one task on one node, in about a second but for that.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster import processes
from cluster.readers import nvml
from validation.payloads import container, network, outside
from validation.payloads.rendezvous import node_name

MUNGE_TIMEOUT_S = 5
SCONTROL_TIMEOUT_S = 5
# Hundreds of megabytes, from a cold disk or a filesystem that all nodes ask at once. Three nodes on
# one disk took more than 30 s.
TORCH_TIMEOUT_S = 90
NVML_TIMEOUT_S = 20  # without persistence mode the first question starts every GPU
TMP = Path("/tmp")
SPOOL = "/var/spool/slurmd"  # where slurmd keeps its jobs unless slurm.conf says otherwise
_MIB = 2**20

_ASKED = ("name", "uuid", "memory_total_mb")  # of each GPU, in the order of ListedGpu


@dataclass(frozen=True, kw_only=True)
class Config:
    """What the node is told.

    munge_credential   made on another node, to be decoded on this one; None decodes nothing
    torch              whether to try to import it
    other_nodes        whose names and packets to try, see network.py; () tries none
    nonce              whose answer this is: it comes back in the document
    """

    munge_credential: str | None = None
    torch: bool = False
    other_nodes: tuple[str, ...] = ()
    nonce: str = ""


@dataclass(frozen=True)
class ListedGpu:
    index: int
    name: str
    uuid: str
    memory_mb: int


@dataclass(frozen=True)
class Folder:
    """Whether there is room in a folder: why nothing can be written, or None."""

    path: str
    error: str | None
    free_mb: int


def proof(environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        "host": node_name(environ),
        "python": platform.python_version(),
        "container": container.system(),
    }


def measure(
    config: Config,
    dev: Path = Path("/dev"),
    meminfo: Path = Path("/proc/meminfo"),
    tmp: Path = TMP,
) -> dict[str, Any]:
    """The node's inventory.

    cpus             online CPUs of the node, whatever the job may use; cpus_allowed is what it may
    memory_mb        MemTotal in MiB, as slurmd counts RealMemory; memory_limit_mb is what this job
                     may use of it, None where nothing limits it
    tmp, spool       /tmp and slurmd's own folder, see Folder; spool is None where none is found
    torch            its version, or None; torch_error says why
    outside          what processes outside of Slurm use of the CPUs, see outside.py; None where
                     that cannot be told
    network          the node's addresses and its ways to other nodes, see network.py
    gpu_device_nodes character devices /dev/nvidia<number>; they exist without a driver too
    gpus, nvml       the GPUs that NVML answers for, and what it does not answer, or None
    munge_*          a fresh credential, and how the given one decoded; errors beside them
    system           boot id and release of the kernel, and the NVIDIA driver's own line, or None
    time_ns          this node's clock, read last so that little lies between it and the answer
    """
    gpus, nvml_error = _gpus()
    encoded, encode_error = _encode()
    decoded, decode_error = _decode(config.munge_credential)
    torch, torch_error = _torch() if config.torch else (None, None)
    spool = _spool()
    return {
        "hostname": socket.gethostname(),
        "cpus": os.sysconf("SC_NPROCESSORS_ONLN"),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "memory_mb": _memory_mb(meminfo),
        "memory_limit_mb": memory_limit_mb(),
        "tmp": asdict(_folder(tmp)),
        "spool": asdict(_folder(spool)) if spool else None,
        "torch": torch,
        "torch_error": torch_error,
        "outside": outside.measure(),
        "network": network.measure(config.other_nodes),
        "gpu_device_nodes": _gpu_device_nodes(dev),
        "gpus": [asdict(gpu) for gpu in gpus],
        "nvml": nvml_error,
        "munge_encoded": encoded,
        "munge_encode_error": encode_error,
        "munge_decoded": decoded,
        "munge_decode_error": decode_error,
        "system": _system(),
        "time_ns": time.time_ns(),
    }


def _system(proc: Path = Path("/proc")) -> dict[str, str | None]:
    """What tells a node from the same one after a reboot or with another driver."""
    return {
        "boot_id": _first_line(proc / "sys/kernel/random/boot_id"),
        "kernel": platform.release(),
        "driver": _first_line(proc / "driver/nvidia/version"),
    }


def _first_line(path: Path) -> str | None:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip().partition("\n")[0]
    return None


def _memory_mb(meminfo: Path) -> int:
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if match := re.fullmatch(r"MemTotal:\s+(\d+) kB", line):
            return int(match[1]) // 1024
    raise RuntimeError(f"{meminfo} has no MemTotal")


def memory_limit_mb(
    own: Path = Path("/proc/self/cgroup"),
    root: Path = Path("/sys/fs/cgroup"),
    mounts: Path = Path("/proc/self/mountinfo"),
) -> int | None:
    """The least that a control group of this process, or one above it, allows."""
    limits = []
    roots = _mounted_roots(mounts.read_text(encoding="utf-8"))
    for line in own.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            mount, file = root, "memory.max"
        elif "memory" in controllers.split(","):
            mount, file = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the mount may begin at its own group, and the path at the host's.
        start = mount / path.removeprefix(roots.get(str(mount), "")).lstrip("/")
        for folder in (start, *start.parents):
            if folder == root.parent:
                break
            with suppress(OSError):
                text = (folder / file).read_text(encoding="ascii").strip()
                # version 1 says "no limit" with the largest number of pages
                if text.isdigit() and int(text) < 2**60:
                    limits.append(int(text))
    return min(limits) // _MIB if limits else None


def _mounted_roots(mountinfo: str) -> dict[str, str]:
    """Which folder of its filesystem each mount point shows (proc(5)); the root itself is ""."""
    fields = (line.split() for line in mountinfo.splitlines())
    return {field[4]: field[3].rstrip("/") for field in fields if len(field) > 4}


def _folder(path: Path) -> Folder:
    """Tries to write where this user may; where it may not, what the filesystem says must do."""
    try:
        space = os.statvfs(path)
    except OSError as error:
        return Folder(str(path), error.strerror, 0)
    problem = None
    if space.f_flag & os.ST_RDONLY:
        problem = os.strerror(errno.EROFS)
    elif os.access(path, os.W_OK | os.X_OK):
        problem = _cannot_write(path)
    elif space.f_bavail == 0:
        problem = os.strerror(errno.ENOSPC)
    return Folder(str(path), problem, space.f_bavail * space.f_frsize // _MIB)


def _cannot_write(path: Path) -> str | None:
    try:
        descriptor, name = tempfile.mkstemp(prefix="plumbline-", dir=path)
        try:
            os.unlink(name)  # first, so that nothing can be left behind
            if os.write(descriptor, bytes(_MIB)) < _MIB:
                return os.strerror(errno.ENOSPC)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.strerror
    return None


def _spool() -> Path | None:
    """slurmd's folder as slurm.conf has it; its usual one where Slurm cannot be asked."""
    try:
        settings = processes.run(["scontrol", "show", "config"], SCONTROL_TIMEOUT_S).stdout
    except processes.CommandFailed:
        settings = ""
    match = re.search(r"^SlurmdSpoolDir\s*=\s*(\S+)", settings, re.MULTILINE)
    if match is None:
        return Path(SPOOL) if os.path.isdir(SPOOL) else None
    host = socket.gethostname().split(".")[0]
    return Path(match[1].replace("%n", node_name(os.environ)).replace("%h", host))


def _torch() -> tuple[str | None, str | None]:
    """The version of torch, or None and why it cannot be imported."""
    script = "import torch, torch.distributed; print(torch.__version__)"
    try:
        answer = processes.run([sys.executable, "-I", "-c", script], TORCH_TIMEOUT_S)
    except processes.CommandFailed as error:
        if error.completed is None:
            return None, f"import torch: {error}"
        last_line = error.complaint or f"exit status {error.completed.status}"
        return None, f"torch cannot be imported: {last_line}"
    return answer.stdout.strip(), None


def _gpu_device_nodes(dev: Path) -> int:
    return sum(
        1
        for path in dev.glob("nvidia[0-9]*")
        if re.fullmatch(r"nvidia[0-9]+", path.name) and path.is_char_device()
    )


def _gpus() -> tuple[list[ListedGpu], str | None]:
    """The GPUs that NVML answers for, and why there are none, or not all that it counts."""
    system, answers = nvml.ask(NVML_TIMEOUT_S, _ASKED)
    if system.error is not None:
        return [], system.error
    gpus, problems = [], []
    for gpu in answers:
        problem = gpu.error or next((unknown.why for unknown in gpu.unknown), None)
        if problem is None:
            gpus.append(ListedGpu(gpu.index, *(gpu.values[name] for name in _ASKED)))
        else:
            problems.append(f"GPU {gpu.index}: {problem}")
    return gpus, "; ".join(problems) or None


def _encode() -> tuple[str | None, str | None]:
    """A credential made on this node, or None and why not."""
    try:
        return processes.run(["munge", "-n"], MUNGE_TIMEOUT_S).stdout.strip(), None
    except processes.CommandFailed as error:
        return None, str(error)


def _decode(credential: str | None) -> tuple[str | None, str | None]:
    """What unmunge calls the credential's status, such as "Success (0)", or None and why not."""
    if credential is None:
        return None, None
    answer: processes.Completed | None
    try:
        answer = processes.run(["unmunge"], MUNGE_TIMEOUT_S, stdin=credential.encode())
        error = "unmunge says nothing of a status"
    except processes.CommandFailed as failure:
        answer, error = failure.completed, str(failure)
    # unmunge prints the status of a credential that it refuses too, and exits non-zero
    if answer and (match := re.search(r"^STATUS:\s+(.+?)\s*$", answer.stdout, re.MULTILINE)):
        return match[1], None
    return None, error
