"""Where a user's files are, and how much room they have: quota(1), `lfs quota`, df(1)."""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Mapping

MOUNTS = "/proc/self/mounts"
SCRATCH = "/etc/plumbline/scratch.json"  # of the role that keeps it
_OCTAL = {r"\040": " ", r"\011": "\t", r"\012": "\n", r"\134": "\\"}  # proc_pid_mounts(5)


Mount = namedtuple("Mount", ("path", "kind"))


class Scratch(namedtuple("Scratch", ("root", "keep_days"))):
    """keep_days: after how long without use files go; None where they stay."""


class Room(namedtuple("Room", ("used", "size", "of_quota"))):
    """In bytes. of_quota says that it is the user's alone, not the filesystem's."""

    @property
    def free(self) -> int:
        return int(max(0, self.size - self.used))


def scratch(path: str = SCRATCH) -> Scratch | None:
    """None where there is none."""
    if not os.path.exists(path):
        return None
    import json  # noqa: PLC0415 - for those who have one

    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        days = document.get("keep_days")
        return Scratch(str(document["root"]), int(days) if days else None)
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        return None


def mount_of(path: str, mounts: str) -> Mount | None:
    """By the table alone: nothing is asked of the filesystem, which may be dead."""
    found = None
    for line in mounts.splitlines():
        fields = [_plain(field) for field in line.split()]
        if len(fields) < 3 or not f"{path}/".startswith(f"{fields[1].rstrip('/')}/"):
            continue
        if found is None or len(fields[1]) >= len(found.path):
            found = Mount(fields[1], fields[2])
    return found


def _plain(field: str) -> str:
    for octal, character in _OCTAL.items():
        field = field.replace(octal, character)
    return field


def questions(places: Mapping[str, str], mounts: str, user: str) -> dict[str, tuple[str, ...]]:
    """The commands that ask for each place."""
    asked: dict[str, tuple[str, ...]] = {}
    for name, path in places.items():
        asked[f"df {name}"] = ("df", "--block-size=1", "--output=used,avail", "--", path)
        mount = mount_of(path, mounts)
        if mount is not None and mount.kind == "lustre":
            asked[f"lfs {name}"] = ("lfs", "quota", "-q", "-u", user, mount.path)
        else:
            asked["quota"] = ("quota", "-w", "-p", "--show-mntpoint", "--hide-device")
    return asked


def room(name: str, path: str, mounts: str, answers: Mapping[str, str]) -> Room | None:
    """The quota, where there is one; None where nobody answered."""
    mount = mount_of(path, mounts)
    if mount is not None:
        said = answers.get(f"lfs {name}") or answers.get("quota", "")
        if (quota := _quota(said, mount.path)) is not None:
            return quota
    numbers = answers.get(f"df {name}", "").split()[-2:]
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        used, free = map(int, numbers)
        return Room(used, used + free, False)
    return None


def _quota(said: str, mount: str) -> Room | None:
    """Of "/home 1024* 50000 60000 …", in KiB; a long name has its numbers on the next line."""
    words = said.split()
    if mount not in words:
        return None
    numbers = [word.rstrip("*") for word in words[words.index(mount) + 1 :][:3]]
    if len(numbers) < 3 or not all(number.isdecimal() for number in numbers):
        return None
    used, soft, hard = map(int, numbers)
    size = soft or hard
    return Room(used * 1024, size * 1024, True) if size else None
