"""What only a node in service is asked, beside its GPUs: disks, memory, munge, clock, mounts.

Each builtin takes the node's configuration and its own arguments, and returns an Outcome. It may
hang: it runs in a process of its own, with a limit (see runner.py). An OSError or any other
exception is a failure of the check.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cluster import processes
from cluster.readers import mounts
from validation.node_health.config import HealthSettings
from validation.node_health.outcome import FAIL, PASS, SKIP, UNKNOWN, WARN, Outcome
from validation.node_health.rdma_path import rdma_path

Arguments = Mapping[str, Any]
Builtin = Callable[[HealthSettings, Arguments], Outcome]

MEMINFO = Path("/proc/meminfo")
EDAC = Path("/sys/devices/system/edac/mc")
PROC = Path("/proc")
CONTAINER = Path("/run/systemd/container")  # systemd writes it where it runs in one
_MIB = 2**20
_UNSYNCHRONISED = 0x40  # STA_UNSYNC of linux/timex.h


def concluded(problems: list[str]) -> Outcome:
    return Outcome(FAIL, "; ".join(problems)) if problems else Outcome(PASS)


def filesystems(config: HealthSettings, arguments: Arguments) -> Outcome:
    """Local filesystems can be written to, and have room: bytes and inodes.

    paths                      those that are not there are left out
    least_free_mb              MiB
    least_free_inodes_percent  of those that count inodes
    """
    return concluded(list(_filesystem_problems(arguments)))


def _filesystem_problems(arguments: Arguments) -> Iterator[str]:
    least_mb, least_inodes = arguments["least_free_mb"], arguments["least_free_inodes_percent"]
    seen = set()
    for path in arguments["paths"]:
        if not os.path.lexists(path):
            continue
        if (device := os.stat(path).st_dev) in seen:
            continue
        seen.add(device)
        space = os.statvfs(path)
        free_mb = space.f_bavail * space.f_frsize // _MIB
        if space.f_flag & os.ST_RDONLY:
            yield f"{path} is read-only"
        if free_mb < least_mb:
            yield f"{path} has {free_mb} MiB free, {least_mb} are needed"
        if space.f_files and 100 * space.f_favail < least_inodes * space.f_files:
            yield f"{path} has {space.f_favail} inodes free of {space.f_files}"


def memory(config: HealthSettings, arguments: Arguments) -> Outcome:
    """While no job runs, what Slurm may give to jobs is there: nothing was left behind.

    least_available_percent  MemAvailable, of what is declared for jobs
    """
    if config.memory_mb == 0:
        return Outcome(SKIP, "no memory for jobs is declared")
    if jobs():
        return Outcome(PASS, "a job runs: its memory is not counted")
    available = meminfo_mb("MemAvailable")
    least = config.memory_mb * arguments["least_available_percent"] // 100
    if available < least:
        reason = f"{available} MiB are available without any job, Slurm promises {config.memory_mb}"
        return Outcome(FAIL, reason)
    return Outcome(PASS)


def meminfo_mb(name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB$", MEMINFO.read_text(encoding="ascii"), re.MULTILINE)
    if match is None:
        raise RuntimeError(f"{MEMINFO} has no {name}")
    return int(match[1]) // 1024


def jobs() -> bool:
    """Whether Slurm runs a job here: each has a slurmstepd. Asks nobody but the kernel."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                name = (entry / "comm").read_text(encoding="utf-8", errors="replace").strip()
            except OSError:  # it ended meanwhile
                continue
            if name == "slurmstepd":
                return True
    return False


def memory_errors(config: HealthSettings, arguments: Arguments) -> Outcome:
    """The node's own memory had no error that its ECC could not correct, since the boot."""
    controllers = sorted(EDAC.glob("mc[0-9]*"))
    if not controllers:
        return Outcome(PASS, "the kernel watches no memory controller")
    problems = []
    for controller in controllers:
        count = int((controller / "ue_count").read_text(encoding="ascii"))
        if count:
            problems.append(
                f"{count} uncorrectable errors of the memory at controller {controller.name}"
            )
    return concluded(problems)


def munge(config: HealthSettings, arguments: Arguments) -> Outcome:
    """munged makes a credential and takes it back."""
    try:
        credential = processes.run(["munge", "-n"], None).stdout
        read = processes.run(["unmunge"], None, stdin=credential.encode()).stdout
    except processes.CommandFailed as error:
        return Outcome(FAIL, str(error))
    status = re.search(r"^STATUS:\s+(.+?)\s*$", read, re.MULTILINE)
    if status is None or not status[1].startswith("Success"):
        return Outcome(FAIL, f"munge does not take its own credential: {status and status[1]}")
    return Outcome(PASS)


class _Timex(ctypes.Structure):
    """struct timex of linux/timex.h; only the members before and with `status` are read."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def clock(config: HealthSettings, arguments: Arguments) -> Outcome:
    """The kernel's clock is kept by somebody (chrony, systemd-timesyncd, ntpd)."""
    if CONTAINER.exists():
        return Outcome(SKIP, "a container has the clock of its host")
    if clock_status() & _UNSYNCHRONISED:
        return Outcome(FAIL, "the clock is not synchronised")
    return Outcome(PASS)


def clock_status() -> int:
    """The kernel's word on the clock, which is right whichever daemon keeps it: adjtimex(2)."""
    timex = _Timex()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(timex)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(timex.status)


def mounted(config: HealthSettings, arguments: Arguments) -> Outcome:
    """Each declared shared filesystem is mounted, says the kernel; no server is asked."""
    if not config.shared_filesystems:
        return Outcome(SKIP, "no shared filesystem is declared")
    lost = [
        path
        for path in config.shared_filesystems
        if mounts.covering(path, mounts.MOUNTINFO).point == "/"
    ]
    return concluded([f"nothing is mounted at {path}" for path in lost])


def mounts_answer(config: HealthSettings, arguments: Arguments) -> Outcome:
    """Each declared shared filesystem answers. A dead server hangs, until the check's limit."""
    if not config.shared_filesystems:
        return Outcome(SKIP, "no shared filesystem is declared")
    for path in config.shared_filesystems:
        os.listdir(path)  # asks the server, not the cache
        os.statvfs(path)
    return Outcome(PASS)


def infiniband(config: HealthSettings, arguments: Arguments) -> Outcome:
    """The ports of the declared fabric are up, at its rate: the validator's check says how."""
    from cluster.readers import infiniband as ports
    from validation.checks import infiniband as rule
    from validation.checks.document import Fields

    if rule.declared(config.fabric) is None:
        return Outcome(SKIP, f"the fabric {config.fabric} has no RDMA port")
    seen = rule.judged(Fields({"error": None, "ports": ports.read()}), config.fabric, config.hcas)
    return Outcome(seen.verdict.value, seen.message)


def kernel_log(config: HealthSettings, arguments: Arguments) -> Outcome:
    """The kernel wrote nothing since the boot after which a node is not to be trusted.

    patterns  a name and a regular expression of each kind of message; ^ is the message's start
    """
    from cluster.readers import kernel_log as log

    patterns: Mapping[str, str] = arguments["patterns"]
    journal = log.search(patterns.values())
    if journal.source is None:
        return Outcome(UNKNOWN, f"the kernel log may not be read: {journal.error}")
    problems = []
    for name, pattern in patterns.items():
        lines = [line for line in journal.lines if re.search(pattern, log.message(line))]
        if lines:
            times = f", {len(lines)} times" if len(lines) > 1 else ""
            problems.append(f"{name}{times}: {lines[-1].strip()}")
    return concluded(problems)


BUILTINS: Mapping[str, Builtin] = {
    "filesystems": filesystems,
    "memory": memory,
    "memory_errors": memory_errors,
    "munge": munge,
    "clock": clock,
    "mounted": mounted,
    "mounts_answer": mounts_answer,
    "infiniband": infiniband,
    "rdma_path": rdma_path,
    "kernel_log": kernel_log,
}

# What a verdict of the validator is here; its "inconclusive" says that nothing is known.
VERDICTS = {"pass": PASS, "warn": WARN, "fail": FAIL, "inconclusive": UNKNOWN, "skip": SKIP}
