#!/usr/bin/env python3
"""Keeps which job has which GPU, for the metrics' label hpc_job: prologs begin, epilogs end.

/run/plumbline/gpu-jobs has a file for each GPU that a job has, named by NVML's index, or by index
and GPU instance (3.9) where MIG is on, with a line for each job: what dcgm-exporter reads with
--hpc-job-mapping-dir. A GPU without jobs has no file: an empty one hides its metrics from older
releases. Boot clears /run.

No command of Slurm's is called: slurmctld waits for the prolog, and so must the prolog not wait for
slurmctld. Nor is the driver asked, for that may hang.

SLURM_JOB_GPUS counts places in gres.conf (gres_common_prep_set_env in gres_common.c), not GPUs.
What stands there says --order:

    device   /dev/nvidia0, 1, …: place N is minor number N, and /proc says where that is on the bus
    pci      AutoDetect, which has the order of the bus, as NVML has

With MIG a place is one in /run/plumbline-mig.json, whoever wrote gres.conf.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NAME = re.compile(r"\d+(\.\d+)?")


class Unknown(Exception):
    """One sentence: why it is not known which GPUs a job has."""


@dataclass(frozen=True)
class Host:
    """Where things are on this host."""

    jobs: Path = Path("/run/plumbline/gpu-jobs")
    proc: Path = Path("/proc/driver")
    mig: Path = Path("/run/plumbline-mig.json")


def places(ranges: str) -> list[int]:
    """Those of "0,2-3"."""
    numbers: list[int] = []
    for part in filter(None, ranges.split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise Unknown(f"SLURM_JOB_GPUS is {ranges}")
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return numbers


def indices(host: Host) -> dict[int, int]:
    """NVML's index by minor number: NVML counts in the order of PCI addresses, as the names sort.

    Empty without the driver's files, as with virtual GPUs.
    """
    by_minor: dict[int, int] = {}
    for index, path in enumerate(sorted(host.proc.glob("nvidia/gpus/*/information"))):
        match = re.search(r"^Device Minor:\s*(\d+)", path.read_text(errors="replace"), re.MULTILINE)
        if match is not None:
            by_minor[int(match[1])] = index
    return by_minor


def names(host: Host, order: str, positions: Sequence[int]) -> list[str]:
    """The files of the GPUs, or instances, at these places. Raises Unknown."""
    known = indices(host)
    if host.mig.exists():
        return _instances(host, known, positions)
    if order == "pci" or not known:
        return [str(place) for place in positions]
    if missing := [place for place in positions if place not in known]:
        raise Unknown(f"no GPU has the minor number {missing[0]}")
    return [str(known[place]) for place in positions]


def _instances(host: Host, known: Mapping[int, int], positions: Sequence[int]) -> list[str]:
    entries = json.loads(host.mig.read_text(encoding="utf-8"))
    text = (host.proc / "nvidia-caps/mig-minors").read_text(encoding="utf-8")
    numbers = {
        int(number): (int(minor), int(instance))
        for minor, instance, number in re.findall(
            r"^gpu(\d+)/gi(\d+)/access (\d+)$", text, re.MULTILINE
        )
    }
    instances = []
    for place in positions:
        if place >= len(entries):
            raise Unknown(f"there is no instance {place} in {host.mig}")
        number = entries[place]["numbers"][0][1]  # of the GPU instance's device file
        if number not in numbers:
            raise Unknown(f"mig-minors has no {number}, which {host.mig} names")
        minor, instance = numbers[number]
        instances.append(f"{known.get(minor, minor)}.{instance}")
    return instances


@contextmanager
def alone(host: Host) -> Iterator[None]:
    """Prologs and epilogs of other jobs run at the same time."""
    host.jobs.mkdir(mode=0o755, parents=True, exist_ok=True)
    with open(host.jobs / ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def begin(host: Host, job: str, files: Sequence[str]) -> None:
    """A job that was queued again, or runs its prolog twice, has its line once."""
    with alone(host):
        _remove(host, job)
        for name in files:
            _keep(host.jobs / name, [*_lines(host.jobs / name), job])


def end(host: Host, job: str) -> None:
    """From all files: whatever the job was said to have, it has nothing any more."""
    with alone(host):
        _remove(host, job)


def _remove(host: Host, job: str) -> None:
    for path in host.jobs.iterdir():
        if NAME.fullmatch(path.name) and job in (before := _lines(path)):
            _keep(path, [line for line in before if line != job])


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="ascii").split() if path.exists() else []


def _keep(path: Path, lines: Sequence[str]) -> None:
    """Whole or not at all: an exporter may read at any time."""
    if not lines:
        path.unlink(missing_ok=True)
        return
    new = path.with_name(f".{path.name}.new")
    new.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    new.chmod(0o644)
    new.replace(path)


def main(arguments: Sequence[str], environ: Mapping[str, str], host: Host) -> int:
    parser = argparse.ArgumentParser(prog="gpu-jobs")
    parser.add_argument("--order", choices=["device", "pci"], default="device")
    parser.add_argument("phase", choices=["begin", "end"])
    options = parser.parse_args(arguments)
    job = environ.get("SLURM_JOB_ID", "")
    try:
        if not job.isdecimal():
            raise Unknown(f"SLURM_JOB_ID is {job or 'not set'}")
        if options.phase == "end":
            end(host, job)
        elif numbers := places(environ.get("SLURM_JOB_GPUS", "")):
            begin(host, job, names(host, options.order, numbers))
    except (KeyError, OSError, TypeError, Unknown, ValueError) as error:
        print(f"{options.phase} of job {job}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ, Host()))
