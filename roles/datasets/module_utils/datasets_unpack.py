"""Unpacks archives that strangers made, as root: nothing of one lands outside of its folder.

An archive with a member that would is refused as a whole. Every member is made anew, and never
through a link; owners, devices and the bits of modes beyond "may be run" are left out.
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from ansible.module_utils.refused import Refused

_CHUNK = 2**20  # bytes
FOLDER, FILE, PROGRAM = 0o755, 0o644, 0o755
# What a file that is no such archive, or half of one, makes of the libraries.
BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile),
    *(zlib.error, lzma.LZMAError, EOFError, RuntimeError),
)


@dataclass
class Folder:
    """Where an archive is unpacked to, and what came there."""

    path: Path
    archive: str  # its name, for sentences
    links: set[PurePosixPath] = field(default_factory=set)

    def place(self, name: str) -> PurePosixPath:
        """Where a member belongs, below the folder. Raises Refused for one that leaves it."""
        member = PurePosixPath(name)
        if member.is_absolute() or ".." in member.parts or "\\" in name or "\0" in name:
            raise self.refused(name, "leaves the folder")
        if self.links and not self.links.isdisjoint(member.parents):
            raise self.refused(name, "lies behind a link of the archive")
        return member

    def refused(self, name: str, why: str) -> Refused:
        return Refused(f"{self.archive} is not unpacked: its member {name!r} {why}")

    def make_folder(self, member: PurePosixPath) -> None:
        # One by one, and whatever the umask is.
        for part in (*reversed(member.parents), member):
            path = self.path / part
            if not path.is_symlink() and path.is_dir():
                continue
            self.make_room(part)
            path.mkdir()
            path.chmod(FOLDER)

    def make_room(self, member: PurePosixPath) -> Path:
        """The path of a new member, at which nothing is: the last one of a name counts."""
        path = self.path / member
        if path.is_dir() and not path.is_symlink():
            raise self.refused(str(member), "is a folder and something else")
        with suppress(FileNotFoundError):
            path.unlink()
        self.links.discard(member)
        return path

    def add_file(
        self, member: PurePosixPath, content: IO[bytes], program: bool, time: float
    ) -> None:
        self.make_folder(member.parent)
        path = self.make_room(member)
        with path.open("xb") as file:
            shutil.copyfileobj(content, file, _CHUNK)
            os.fchmod(file.fileno(), PROGRAM if program else FILE)
        os.utime(path, (time, time))

    def leads(self, member: PurePosixPath, target: str) -> None:
        """Refuses a link out of the folder. Steps up come first, where no link is on the way."""
        parts = PurePosixPath(target).parts
        up = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
        if target.startswith("/") or up > len(member.parent.parts) or ".." in parts[up:]:
            raise self.refused(str(member), f"is a link to {target}, which leaves the folder")

    def add_link(self, member: PurePosixPath, target: str) -> None:
        """A symbolic link, which leads to another member (`leads`)."""
        self.make_folder(member.parent)
        self.make_room(member).symlink_to(target)
        self.links.add(member)

    def add_same(self, member: PurePosixPath, target: PurePosixPath) -> None:
        """A hard link: another name of a file that was unpacked before."""
        source = self.path / target
        if member == target or source.is_symlink() or not source.is_file():
            raise self.refused(
                str(member), f"is a hard link to {target}, which is no file before it"
            )
        self.make_folder(member.parent)
        self.make_room(member).hardlink_to(source)


def unpack(archive: Path, kind: str, folder: Path, name: str) -> None:
    """Unpacks it into an existing folder. Raises Refused, and OSError of the disk."""
    try:
        (_untar if kind == "tar" else _unzip)(archive, Folder(folder, name))
    except BROKEN as error:
        raise Refused(
            f"{name} is no {kind} archive that can be read: {error}; correct `archive` of the file"
        ) from None


def size_inside(archive: Path, kind: str) -> int:
    """Bytes of what is in it, where that can be told without reading all of it; else 0."""
    if kind != "zip":
        return 0
    with suppress(*BROKEN), zipfile.ZipFile(archive) as file:
        return sum(member.file_size for member in file.infolist())
    return 0


def _untar(archive: Path, to: Folder) -> None:
    # Python 3.11.4 and later has rules of its own for data; they are asked after ours.
    rules: Callable[[tarfile.TarInfo, str], object] | None = getattr(tarfile, "data_filter", None)
    with tarfile.open(archive) as file:
        for member in _members(file):
            place = to.place(member.name)
            if not (member.isdir() or member.isreg() or member.issym() or member.islnk()):
                raise to.refused(member.name, "is a device or a pipe")
            if member.issym():
                to.leads(place, member.linkname)
            elif member.islnk():
                to.place(member.linkname)
            if rules:
                try:
                    rules(member, str(to.path))
                except tarfile.TarError as error:
                    raise to.refused(member.name, f"is refused by Python ({error})") from None
            if member.isdir():
                to.make_folder(place)
            elif member.issym():
                to.add_link(place, member.linkname)
            elif member.islnk():
                to.add_same(place, to.place(member.linkname))
            elif content := file.extractfile(member):
                to.add_file(place, content, bool(member.mode & stat.S_IXUSR), member.mtime)


def _members(file: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """One after another; what was seen is forgotten, for there may be millions."""
    while (member := file.next()) is not None:
        yield member
        file.members.clear()  # type: ignore[attr-defined]


def _unzip(archive: Path, to: Folder) -> None:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            place = to.place(member.filename)
            mode = member.external_attr >> 16
            if member.is_dir():
                to.make_folder(place)
            elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise to.refused(member.filename, "is a link or a device")
            else:
                with file.open(member) as content:
                    to.add_file(place, content, bool(mode & stat.S_IXUSR), archive.stat().st_mtime)
