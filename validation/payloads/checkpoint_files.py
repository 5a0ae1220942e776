"""The files of a checkpoint on a shared filesystem: where they lie, and whether they are right.

A manifest beside the files says what each rank wrote: size and sha256, now and at the save before.
A rank that resumes knows from it whether a file is torn (shorter or longer), stale (of the save
before), swapped (another rank's) or spoiled. Everything lies in one folder of this user,
`plumbline-checkpoint-UID`, with a folder for each run; nothing else is ever removed.

Needs no torch. Every call can hang for as long as the file server does; the group's watch ends it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster.errors import CannotRun
from validation.payloads import shared_fs

MANIFEST = "manifest.json"
# What a folder of a run may hold: nothing else is removed.
OURS = re.compile(r"__\d+_\d+\.distcp|\.metadata|\.metadata\.tmp|manifest\.json(\.tmp)?|mark")
MARK = "mark"
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
LEFT_S = 86_400  # no run lasts so long: what is older was left by one that was killed
SEEN_S = 20.0  # clients of a file server may remember for a while that a file was not there
_TRIES = 10
_CHUNK = 1 << 20
_MIB = 1 << 20


@dataclass(frozen=True)
class File:
    """What a rank wrote. `before`: the sha256 at the save before; "" where there was none."""

    rank: int
    host: str
    name: str
    bytes: int
    sha256: str
    before: str = ""


@dataclass(frozen=True)
class Manifest:
    """Of a whole checkpoint.

    stamp        of the run
    state        sha256 of each whole tensor, by its name in the checkpoint
    references   what the writing ranks' references came to, each that occurs
    """

    stamp: str
    step: int
    ranks: int
    state: Mapping[str, str]
    references: tuple[str, ...]
    files: tuple[File, ...]


# --- the folder ---------------------------------------------------------------------------------


def run_folder(filesystem: str, run: str) -> Path:
    """Where a run's checkpoint lies. Raises CannotRun where this user cannot write."""
    if not RUN.fullmatch(run):
        raise CannotRun(f"{run!r} is no name of a folder")
    try:
        os.listdir(filesystem)  # an automounter mounts only then
        where = shared_fs.writable(filesystem)
    except OSError as error:
        raise CannotRun(f"{filesystem}: {error.strerror}") from error
    if where is None:
        raise CannotRun(f"{filesystem}: this user may not write there")
    return Path(where) / f"plumbline-checkpoint-{os.getuid()}" / run


def make(folder: Path, needed: int) -> int:
    """Makes the folder of a run and removes what killed runs of this user left a day ago or longer.

    Returns the bytes that are free. Raises CannotRun where fewer than `needed` are, and where the
    user's folder is another's.
    """
    for _ in range(_TRIES):
        try:
            return _made(folder, needed)
        except FileNotFoundError:
            # Another group's job has just removed the folder that both had.
            time.sleep(0.1)
        except OSError as error:
            raise CannotRun(f"{folder}: {error.strerror}") from error
    raise CannotRun(f"{folder} cannot be made: what it lies in does not stay")


def _made(folder: Path, needed: int) -> int:
    base = folder.parent
    with suppress(FileExistsError):
        os.mkdir(base, 0o700)
    seen = os.lstat(base)
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
        raise CannotRun(f"{base} is not a folder of this user: remove it")
    _remove_left(base)
    space = os.statvfs(base)
    free = space.f_bavail * space.f_frsize
    if free < needed:
        raise CannotRun(
            f"{base}: {free / _MIB:.0f} MiB are free, a checkpoint needs {needed / _MIB:.0f}"
        )
    os.mkdir(folder, 0o700)
    (folder / MARK).write_text(folder.name, encoding="utf-8")
    return free


def remove(folder: Path) -> None:
    """Removes a run's folder with what this module knows of it, and the user's where it is empty.

    What it does not know stays, and then so does the folder. Links are not followed.
    """
    with suppress(OSError):
        for entry in sorted(os.listdir(folder)):
            if OURS.fullmatch(entry) and stat.S_ISREG(os.lstat(folder / entry).st_mode):
                os.unlink(folder / entry)
        os.rmdir(folder)
        os.rmdir(folder.parent)


def _remove_left(base: Path) -> None:
    """By the file server's clock, which is the only one that all nodes share."""
    descriptor, clock = tempfile.mkstemp(prefix="clock-", dir=base)
    now = os.fstat(descriptor).st_mtime
    os.close(descriptor)
    os.unlink(clock)
    for name in os.listdir(base):
        with suppress(OSError):
            seen = os.lstat(base / name)
            if now - seen.st_mtime <= LEFT_S:
                continue
            if stat.S_ISDIR(seen.st_mode) and RUN.fullmatch(name):
                remove(base / name)
            elif stat.S_ISREG(seen.st_mode) and name.startswith("clock-"):
                os.unlink(base / name)


def seen(path: Path) -> bool:
    """Whether the file is there, now or in a moment."""
    until = time.monotonic() + SEEN_S
    while True:
        with suppress(OSError):
            os.stat(path)
            return True
        if time.monotonic() > until:
            return False
        time.sleep(0.5)


# --- what was written ---------------------------------------------------------------------------


def written(folder: Path, rank: int, host: str, before: Iterable[File] = ()) -> list[File]:
    """A rank's files, as they are read back; rank 0 has the metadata too.

    before: what this rank found after the save before.
    """
    earlier = {file.name: file.sha256 for file in before}
    names = [name for name in sorted(os.listdir(folder)) if name.startswith(f"__{rank}_")]
    if rank == 0:
        names.append(".metadata")
    files = []
    for name in names:
        size, digest = _digest(folder / name)
        files.append(File(rank, host, name, size, digest, earlier.get(name, "")))
    return files


def write_manifest(folder: Path, manifest: Manifest) -> None:
    temporary = folder / f"{MANIFEST}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(asdict(manifest), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / MANIFEST)


def read_manifest(folder: Path, stamp: str) -> Manifest:
    """Raises CannotRun where there is none of this run."""
    path = folder / MANIFEST
    if not seen(path):
        raise CannotRun(f"{folder} holds no complete checkpoint of this run")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        files = tuple(_file(item) for item in document.pop("files"))
        references = tuple(map(str, document.pop("references")))
        manifest = Manifest(**document, references=references, files=files)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CannotRun(f"{path} cannot be read: {error}") from error
    if manifest.stamp != stamp:
        raise CannotRun(f"{path} is of another run")
    return manifest


def _file(item: Mapping[str, Any]) -> File:
    file = File(**item)
    if not re.fullmatch(r"__\d+_\d+\.distcp|\.metadata", file.name):
        raise ValueError(f"{file.name!r} is no file of a checkpoint")
    return file


# --- whether it is that -------------------------------------------------------------------------


def problem(folder: Path, file: File, others: Sequence[File]) -> str:
    """What is wrong with a file, in words that follow its name; "" where nothing is."""
    try:
        size, digest = _digest(folder / file.name)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if digest == file.sha256 else _kind(file, size, digest, others)


def _kind(file: File, size: int, digest: str, others: Sequence[File]) -> str:
    if digest == file.before:
        return "is stale: it holds the save before"
    for other in others:
        if digest in (other.sha256, other.before) and other.name != file.name:
            return f"is swapped: it holds what rank {other.rank} wrote"
    if size != file.bytes:
        return f"is torn: {size} of {file.bytes} bytes"
    return "is spoiled: its content is not what was written"


def shares(count: int, rank: int, ranks: int, apart: int) -> list[int]:
    """Which of `count` files a rank looks at.

    Each is looked at by two ranks, `apart` from each other, so that two nodes do where there are
    two: what only one of them sees is that node's.
    """
    return [index for index in range(count) if rank in (index % ranks, (index + apart) % ranks)]


def _digest(path: Path) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        read: Callable[[], bytes] = lambda: file.read(_CHUNK)  # noqa: E731 - for iter
        for part in iter(read, b""):
            digest.update(part)
            size += len(part)
    return size, digest.hexdigest()
