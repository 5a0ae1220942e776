"""A secret of the control node while it is being replaced.

    munge.key            the value that hosts shall have
    munge.key.previous   the one that they had: the replacement is not complete

The new value is written whole beside the old one before anything else, and the old one stays until
all hosts have the new one. A run that is killed at any point leaves one of the two states, and the
next run of the same command goes on: it makes no third value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from playbooks.plugin_utils import kept, sealing

NEXT = ".next"
PREVIOUS = ".previous"


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def under_way(folder: Path) -> list[Path]:
    """The secrets of a folder whose replacement is not complete."""
    found = sorted(folder.glob(f"*{PREVIOUS}")) if folder.is_dir() else []
    return [path.with_name(path.name.removesuffix(PREVIOUS)) for path in found]


def begin(path: Path, made: Callable[[], bytes], passwords: sealing.Passwords, now: float) -> bool:
    """Replaces a secret by what is made; False if an earlier run has begun. Raises NotKept.

    At any time the file is there, whole, with the one value or the other.
    """
    new, old = beside(path, NEXT), beside(path, PREVIOUS)
    try:
        if old.exists() and not new.exists():
            return False
        if not path.exists():
            raise kept.NotKept(
                f"there is no {path}, so there is nothing to replace; run slurm-cluster.yml first"
            )
        if any(file.samefile(path) for file in kept.tracked_by_git(path.parent) if file.exists()):
            raise kept.NotKept(
                f"git tracks {path}, and would be given the new value as well; run `git rm "
                f"--cached {path}`, or encrypt the file (scripts/secrets encrypt)"
            )
        if not new.exists():
            sealing.put(new, sealing.like(path.read_bytes(), made(), path, passwords))
        if not old.exists():
            os.link(path, old)
        os.utime(new, (now, now))
        new.replace(path)
    except OSError as error:
        raise kept.NotKept(f"{path} cannot be replaced: {error.strerror}") from None
    return True


def complete(paths: Iterable[Path]) -> list[Path]:
    """Forgets the old values; the secrets that had one. Raises NotKept."""
    done = []
    for path in paths:
        old = beside(path, PREVIOUS)
        try:
            if old.exists():
                old.unlink()
                done.append(path)
        except OSError as error:
            raise kept.NotKept(f"{old} cannot be removed: {error.strerror}") from None
    return done
