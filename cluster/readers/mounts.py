"""What is mounted where, as /proc/self/mountinfo says: reading it asks no filesystem.

The format is in https://docs.kernel.org/filesystems/proc.html, section 3.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MOUNTINFO = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class Mount:
    """source is what the filesystem calls itself: a device, "server:/export", "tmpfs"."""

    point: str
    type: str
    source: str


def covering(path: str, mountinfo: Path = MOUNTINFO) -> Mount:
    """The mount that a path lies on. Raises RuntimeError where there is none, not even a root."""
    mounts = parse(mountinfo.read_text(encoding="utf-8", errors="replace").splitlines())
    wanted = PurePosixPath(path)
    over = [mount for mount in mounts if wanted.is_relative_to(mount.point)]
    if not over:
        raise RuntimeError(f"{mountinfo} has no mount for {path}")
    longest = max(len(PurePosixPath(mount.point).parts) for mount in over)
    # Of two at one place the later one hides the earlier.
    return [mount for mount in over if len(PurePosixPath(mount.point).parts) == longest][-1]


def parse(lines: Iterable[str]) -> list[Mount]:
    """36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue"""
    mounts = []
    for line in lines:
        before, dash, after = line.partition(" - ")
        own, super_ = before.split(" "), after.split(" ")
        if dash and len(own) >= 6 and len(super_) >= 3:
            mounts.append(Mount(_plain(own[4]), super_[0], _plain(super_[1])))
    return mounts


def _plain(text: str) -> str:
    """Blanks and the like are written as octal numbers: "\\040"."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)
