#!/usr/bin/python3
"""Removes what containers left behind on a node: a timer's and the epilog's work.

    SCRATCH/gone              what the epilog moved aside: all of it
    SCRATCH/cache/user-UID    layers that nobody used for some days, and the oldest above a size
    SCRATCH/data/user-UID     unpacked containers that were not started for some days
    SCRATCH/temp/user-UID     what an import left

Containers, and what imports left, are taken only from users without a job on this node: each has a
folder in JOBS while one runs. A layer younger than an hour may belong to an import under way.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DAY = 86_400
YOUNG = 3_600  # seconds
GIB = 2**30


@dataclass(frozen=True)
class Layer:
    """A file of the cache: bytes on disk, and when it was last used, in seconds since 1970."""

    path: Path
    size: int
    used: float


def entries(folder: Path) -> list[Path]:
    """What a folder holds; nothing when there is none, or when it went away meanwhile."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(folder.iterdir())
    return []


def layers(cache: Path) -> Iterator[Layer]:
    """Every file of every user's cache."""
    for user in entries(cache):
        for path in entries(user):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                if path.is_file() and not path.is_symlink():
                    yield Layer(path, status.st_blocks * 512, max(status.st_atime, status.st_mtime))


def layers_to_remove(candidates: list[Layer], now: float, days: float, most: int) -> list[Layer]:
    """Those older than so many days, then the longest unused until at most `most` bytes stay."""
    removable = sorted(
        (layer for layer in candidates if now - layer.used > YOUNG), key=lambda layer: layer.used
    )
    total = sum(layer.size for layer in candidates)
    gone = []
    for layer in removable:
        if now - layer.used > days * DAY or total > most:
            gone.append(layer)
            total -= layer.size
    return gone


def last_started(container: Path) -> float:
    """When a container was made or last started, in seconds since 1970.

    The times of its own folder are those of the image; its inode is as old as the container, and
    enroot opens /.lock for writing at each start (runtime::_start).
    """
    times = [container.lstat().st_ctime]
    with contextlib.suppress(OSError):
        times.append((container / ".lock").lstat().st_mtime)
    return max(times)


def containers_to_remove(scratch: Path, jobs: Path, now: float, days: float) -> list[Path]:
    """Containers and left-overs of imports that are old, of users who have no job here."""
    return [
        path
        for kind in ("data", "temp")
        for user in entries(scratch / kind)
        if not (jobs / user.name.removeprefix("user-")).is_dir()
        for path in entries(user)
        if now - last_started(path) > days * DAY
    ]


def set_aside(paths: list[Path], gone: Path) -> None:
    """Moves them out of their users' reach, which takes no time, so that a job may begin."""
    for number, path in enumerate(paths):
        place = gone / f"{os.getpid()}-{number}"
        place.mkdir(mode=0o700)
        path.rename(place / "gone")


def clean(scratch: Path, jobs: Path, lock: Path, days: float, most: int) -> list[str]:
    """Removes it all; returns what could not be removed, one sentence each."""
    now, problems = time.time(), []
    gone = scratch / "gone"
    # The lock that a prolog holds: no job begins between the look at JOBS and the move.
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        set_aside(containers_to_remove(scratch, jobs, now, days), gone)
    for layer in layers_to_remove(list(layers(scratch / "cache")), now, days, most):
        layer.path.unlink(missing_ok=True)
    for place in entries(gone):
        try:
            shutil.rmtree(place)
        except OSError as error:
            problems.append(f"{error.filename or place} stays: {error.strerror}.")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--jobs", type=Path, required=True)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--days", type=float, required=True)
    parser.add_argument("--cache-gib", type=float, required=True)
    options = parser.parse_args()
    most = int(options.cache_gib * GIB)
    problems = clean(options.scratch, options.jobs, options.lock, options.days, most)
    for problem in problems:
        print(f"enroot-clean: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
