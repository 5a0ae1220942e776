"""What a version's folder has, file by file, and the one hash that all hosts must agree on.

Modules find it as ansible.module_utils.user_libraries_tree.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ansible.module_utils.user_libraries_entry import LISTING, MANIFEST, Built

_CHUNK = 2**20  # bytes
# What Python itself put there, which may be another one by its last digit on each host, and
# bytecode, which has the time of its file in it or not. Everything else came out of the wheels.
_PYTHONS_OWN = re.compile(
    r"pyvenv[.]cfg|[.]gitignore|lib64|bin/(python[0-9.]*|activate([.]c?sh|[.]fish|)|Activate[.]ps1)"
    r"|.*[.]pyc"
)
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


@dataclass
class Listing:
    """Files with their SHA-256 and links with their targets, by path below the folder."""

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    bytes: int = 0
    loose: list[str] = field(default_factory=list)  # what others than the owner may write to

    def text(self) -> str:
        return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(self.files.items()))

    def content(self) -> str:
        lines = [f"{sha256}  {name}" for name, sha256 in self.files.items()]
        lines += [f"{target} <- {name}" for name, target in self.links.items()]
        names = [*self.files, *self.links]
        kept = [
            line
            for name, line in zip(names, lines, strict=True)
            if not _PYTHONS_OWN.fullmatch(name)
        ]
        return hashlib.sha256("\n".join(sorted(kept)).encode()).hexdigest()


def listed(folder: Path) -> Listing:
    """Reads every byte below the folder. No link is followed."""
    found = Listing()
    owner = folder.lstat().st_uid
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(where, name)
            below = path.relative_to(folder).as_posix()
            if below in {MANIFEST, LISTING}:
                continue
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                found.links[below] = os.readlink(path)
                continue
            if status.st_uid != owner or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                found.loose.append(below)
            if stat.S_ISREG(status.st_mode):
                found.files[below] = _sha256(path)
                found.bytes += status.st_size
            elif not stat.S_ISDIR(status.st_mode):
                found.files[below] = "0" * 64  # a pipe or a device, which no wheel has
    return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def read_listing(folder: Path) -> dict[str, str]:
    """What the files were when the version was built. Raises FileNotFoundError."""
    lines = (folder / LISTING).read_text("utf-8").splitlines()
    return {match[2]: match[1] for match in map(_LINE.fullmatch, lines) if match}


def differences(folder: Path, built: Built) -> Iterator[str]:
    """What is not as it was built: a path, and how. Raises FileNotFoundError without a listing."""
    now, before = listed(folder), read_listing(folder)
    same = True
    for name in sorted({*before, *built.links, *now.files, *now.links}):
        was = before.get(name) or built.links.get(name)
        is_now = now.files.get(name) or now.links.get(name)
        if was != is_now:
            same = False
            how = "is gone" if is_now is None else "was added" if was is None else "has changed"
            yield f"{name} {how}"
    for name in now.loose:
        yield f"{name} may be written to by others than root"
    # Who changes a file may change the listing, too.
    if same and now.content() != built.content:
        yield f"{LISTING} has changed, and files with it"
