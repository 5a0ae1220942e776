"""Archives: a tar that begins with its manifest, encrypted by age to the site's public keys.

age authenticates what it decrypts, piece by piece and to the end: what was cut off or changed does
not decrypt. Nothing on the cluster can decrypt an archive, so one is checked here by what can be
seen of it from outside: its header, who can read it, and its exact size.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from cluster.text import printable
from roles.backup.files.backup import manifest
from roles.backup.files.backup.collect import PIECE
from roles.backup.files.backup.errors import Refused
from roles.backup.files.backup.manifest import Manifest, Member

MAGIC = b"age-encryption.org/v1\n"
# C2SP's age: 16 bytes of nonce, then pieces of 64 KiB with a tag of 16 bytes each.
NONCE, CHUNK, TAG = 16, 65536, 16


class _Counted(io.RawIOBase):
    """Passes on what is written, and counts it."""

    def __init__(self, file: BinaryIO) -> None:
        self.count, self._file = 0, file

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self._file.write(piece)
        self.count += len(piece)
        return len(piece)


def seal(
    spool: Path, about: Manifest, recipients: Sequence[str], path: Path, age: str = "age"
) -> None:
    """Writes an archive of a spool to a path that nobody reads yet. Raises Refused."""
    command = [age, "--encrypt", "--output", str(path)]
    for recipient in recipients:
        command += ["--recipient", recipient]
    with tempfile.TemporaryFile() as complaints:
        with _started(command, stdin=subprocess.PIPE, stderr=complaints) as process:
            assert process.stdin is not None
            counted = _Counted(process.stdin)  # type: ignore[arg-type]
            with suppress(BrokenPipeError):  # age says why it ended
                _write(spool, about, counted)
            with suppress(BrokenPipeError):
                process.stdin.close()
        complaints.seek(0)
        said = printable(complaints.read().decode(errors="replace"), 300)
    if process.returncode != 0:
        raise Refused(f"age did not encrypt the archive: {said}")
    check_sealed(path, counted.count, len(recipients))
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _write(spool: Path, about: Manifest, stream: _Counted) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        text = about.text().encode()
        first = tarfile.TarInfo(manifest.NAME)
        first.size, first.mode, first.mtime = len(text), 0o600, int(about.time.timestamp())
        tar.addfile(first, io.BytesIO(text))
        for member in about.members:
            entry = tar.gettarinfo(str(spool / member.path), member.path)
            entry.mode, entry.uname, entry.gname = member.mode, member.owner, member.group
            if entry.isreg():
                with open(spool / member.path, "rb") as file:
                    tar.addfile(entry, file)
            else:
                tar.addfile(entry)


def check_sealed(path: Path, plain: int, recipients: int) -> None:
    """Whether a whole archive of so many bytes lies there, for so many keys. Raises Refused."""
    with open(path, "rb") as file:
        header = _header(file)
    size = len(header) + NONCE + plain + TAG * max(1, -(-plain // CHUNK))
    keys = header.count(b"\n-> ")
    if not header.startswith(MAGIC) or keys < recipients or path.stat().st_size != size:
        raise Refused(
            f"{path} has {path.stat().st_size} bytes for {keys} keys, and should have {size} for "
            f"{recipients}; look whether its disk is full"
        )


def _header(file: BinaryIO) -> bytes:
    lines = []
    for line in iter(file.readline, b""):
        lines.append(line)
        if line.startswith(b"--- ") or len(lines) > 1000:
            break
    return b"".join(lines)


# --- opening --------------------------------------------------------------------------------------


def unseal(path: Path, identity: Path, tar: Path, age: str = "age") -> Manifest:
    """Decrypts an archive to a tar that its owner alone may read, and checks all of it.

    Raises Refused; the sentence goes on after the archive's name.
    """
    command = [age, "--decrypt", "--identity", str(identity), "--output", str(tar), str(path)]
    os.close(os.open(tar, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    with tempfile.TemporaryFile() as complaints:
        with _started(command, stdin=subprocess.DEVNULL, stderr=complaints) as process:
            pass
        complaints.seek(0)
        said = printable(complaints.read().decode(errors="replace"), 300)
    if process.returncode != 0:
        raise Refused(_why(said, path, identity))
    return check(tar)


def _why(said: str, path: Path, identity: Path) -> str:
    said = said.partition(" age: report")[0].removeprefix("age: error: ")
    if "no identity matched" in said:
        return f"is encrypted to other keys than the one in {identity}; give the file of its key"
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return "is no archive of age; give a file that playbooks/backup.yml made"
    if str(identity) in said:
        return f"cannot be decrypted with {identity} ({said}); give a file that age-keygen made"
    return f"is truncated or damaged ({said}); take another copy of it, or an earlier one"


def check(tar: Path) -> Manifest:
    """Every file has the hash that the manifest says, and no file is there besides. Raises Refused.

    Sentences go on after the archive's name.
    """
    try:
        with tarfile.open(tar, "r:") as opened:
            about = _manifest(opened)
            expected = {member.path: member for member in about.members}
            for entry in opened:
                if entry.name == manifest.NAME:
                    continue
                member = expected.pop(entry.name, None)
                if member is None:
                    raise Refused(f"has {entry.name}, which its manifest does not; take another")
                if _told(opened, entry) != (member.kind, member.sha256):
                    raise Refused(
                        f"has another {entry.name} than its manifest says; take another archive"
                    )
            if expected:
                raise Refused(f"lacks {next(iter(expected))}; take another archive")
    except tarfile.TarError as error:
        raise Refused(f"is damaged ({error}); take another archive") from None
    return about


def _manifest(opened: tarfile.TarFile) -> Manifest:
    first = opened.next()
    file = opened.extractfile(first) if first is not None and first.isreg() else None
    if first is None or first.name != manifest.NAME or file is None:
        raise Refused(f"does not begin with {manifest.NAME}; give one of playbooks/backup.yml")
    return manifest.of(file.read())


def _told(opened: tarfile.TarFile, entry: tarfile.TarInfo) -> tuple[str, str]:
    """Kind and hash."""
    if entry.isdir():
        return manifest.FOLDER, ""
    if entry.issym():
        return manifest.LINK, hashlib.sha256(entry.linkname.encode()).hexdigest()
    file = opened.extractfile(entry)
    if not entry.isreg() or file is None:
        return "other", ""
    digest = hashlib.sha256()
    while piece := file.read(PIECE):
        digest.update(piece)
    return manifest.FILE, digest.hexdigest()


def members(tar: Path, part: str) -> Iterator[tuple[Member, BinaryIO | None]]:
    """The members of a part, with the content of files. What is read here was not checked."""
    with tarfile.open(tar, "r:") as opened:
        known = {member.path: member for member in _manifest(opened).members}
        for entry in opened:
            if entry.name != manifest.NAME and entry.name.partition("/")[0] == part:
                file = opened.extractfile(entry) if entry.isreg() else None
                yield known[entry.name], file  # type: ignore[misc]


@contextmanager
def _started(
    command: Sequence[str], stdin: int, stderr: BinaryIO
) -> Iterator[subprocess.Popen[bytes]]:
    """Waits for its end. Raises Refused where the program is missing."""
    try:
        process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=stderr)
    except FileNotFoundError:
        raise Refused(f"needs the program {command[0]}; install the package age") from None
    with process:
        yield process
