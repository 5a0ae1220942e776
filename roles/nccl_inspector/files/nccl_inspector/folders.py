"""The folders of jobs, and what may be read of them.

The folder above them is root's, so a folder's name and owner are those that the prolog gave. All
within is its user's: a link, a pipe, another user's file or one with two names is not read, and
what is read has limits.
"""

from __future__ import annotations

import ctypes
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

MOST_JOBS = 256
MOST_ENTRIES = 1024  # that are looked at in one folder
MOST_FILES = 64  # that are read: the processes of one job on one node
_NAME = re.compile(r"[1-9][0-9]{0,9}")
_NOT_FOLLOWED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PUNCHED = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE


@dataclass(frozen=True)
class JobFolder:
    """A job that runs here, and whose it is."""

    job: str
    owner: int
    path: Path


def of_jobs(root: Path) -> list[JobFolder]:
    """Those that the prolog made, in the order of their numbers. Raises OSError without `root`."""
    with os.scandir(root) as entries:
        found = [
            JobFolder(entry.name, entry.stat(follow_symlinks=False).st_uid, Path(entry.path))
            for entry in entries
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
    return sorted(found, key=lambda folder: int(folder.job))[:MOST_JOBS]


@dataclass(frozen=True)
class OwnFile:
    """An open file of the job's owner."""

    number: int
    identity: tuple[int, int]  # device and inode
    size: int
    modified: float


@contextmanager
def opened(folder: JobFolder, name: str, writing: bool = False) -> Iterator[OwnFile]:
    """Raises OSError, also for what is no file of the owner's own."""
    place = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | _NOT_FOLLOWED)
    try:
        mode = os.O_RDWR if writing else os.O_RDONLY
        number = os.open(name, mode | _NOT_FOLLOWED, dir_fd=place)
    finally:
        os.close(place)
    try:
        seen = os.fstat(number)
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != folder.owner or seen.st_nlink != 1:
            raise PermissionError(f"{name} is not a file of the job's owner")
        yield OwnFile(number, (seen.st_dev, seen.st_ino), seen.st_size, seen.st_mtime)
    finally:
        os.close(number)


def names(folder: JobFolder, ending: str) -> list[str]:
    """Names in the folder that end so; none where it is gone."""
    with suppress(OSError), os.scandir(folder.path) as entries:
        found = [entry.name for entry in islice(entries, MOST_ENTRIES)]
        return sorted(name for name in found if name.endswith(ending))[:MOST_FILES]
    return []


def freed(file: OwnFile, end: int) -> None:
    """Gives back the room of what was read. Whoever writes the file goes on where it is."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None, use_errno=True)
        size = ctypes.c_int64
        library.fallocate(file.number, _PUNCHED, size(0), size(end))


def data_from(file: OwnFile, begin: int) -> int:
    """Where the first byte at or after `begin` lies that was not given back."""
    try:
        return os.lseek(file.number, begin, os.SEEK_DATA)
    except OSError:  # nothing but a hole
        return file.size
