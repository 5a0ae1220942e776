"""Files that are replaced whole: who reads one meets the old text or the new one, never a half.

Modules find it as ansible.module_utils.whole_file, and it runs on nodes with nothing but Python.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ANY = -1  # whoever runs the module, as os.chown has it


class NoPlace(Exception):
    """One sentence without its end: a path that leads out of its folder."""


@dataclass(frozen=True)
class Access:
    """A mode, and the numbers of an owner and a group where they matter."""

    mode: int = 0o644
    user: int = ANY
    group: int = ANY

    def holds(self, status: os.stat_result) -> bool:
        return (
            stat.S_IMODE(status.st_mode) == self.mode
            and self.user in {ANY, status.st_uid}
            and self.group in {ANY, status.st_gid}
        )

    def grant(self, path: Path) -> None:
        if (self.user, self.group) != (ANY, ANY):
            os.chown(path, self.user, self.group)
        path.chmod(self.mode)  # last, for a change of owner takes bits away


FILE, FOLDER = Access(0o644), Access(0o755)
# A file that stays the module's own, so root's on a node, and is put right if it is given away.
OWN_FILE = Access(0o644, os.geteuid(), os.getegid())


def differs(path: Path, text: str, access: Access = FILE) -> bool:
    """Whether a file has to be written; a link always has to be one."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or not access.holds(status):
            return True
        return path.read_bytes() != text.encode()
    except FileNotFoundError:
        return True


def make_folder(folder: Path, access: Access = FOLDER) -> None:
    """With those above it, whatever the umask is. Folders that are there stay as they are."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir()
        access.grant(missing)


def write(path: Path, text: str, access: Access = FILE, folders: Access = FOLDER) -> None:
    make_folder(path.parent, folders)
    # A name that nobody reads: not *.conf, hidden from a shell's *, and a backup to Lmod.
    new = path.with_name(f".{path.name}.new~")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text.encode())
    access.grant(new)
    new.replace(path)


def remove(path: Path, top: Path) -> None:
    """With the folder of it, if that lies below `top` and is empty then."""
    path.unlink(missing_ok=True)
    if top in path.parent.parents:
        with suppress(OSError):  # somebody else's file is in it
            path.parent.rmdir()


def place(name: str) -> PurePosixPath:
    """A path below a folder. Raises NoPlace for one that leads out of it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise NoPlace(f"{name!r} is no path of a file below the folder")
    return path


def surplus(folder: Path, names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Files and links below the folder that match a pattern and are none of `names`."""
    matching = {
        path.relative_to(folder).as_posix()
        for pattern in patterns
        for path in folder.glob(str(place(pattern)))
        if path.is_file() or path.is_symlink()
    }
    return sorted(matching - {str(place(name)) for name in names})
