"""Copies what belongs in an archive to a folder of root's, and hashes each copy as it is written.

What is hashed is what is packed, whatever changes meanwhile. The accounting database comes first,
the queue right after: a dump shows the database as it was when it began, and the queue is copied
once the dump has begun. So no job is in accounting whose number the restored slurmctld would give
to another one.
"""

from __future__ import annotations

import grp
import gzip
import hashlib
import os
import pwd
import sqlite3
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from cluster.text import printable
from roles.backup.files.backup import manifest
from roles.backup.files.backup.errors import Refused
from roles.backup.files.backup.manifest import Member

PIECE = 1 << 20
DUMP = (
    "mariadb-dump",
    "--single-transaction",  # InnoDB shows one moment, and slurmdbd writes on
    "--quick",
    "--hex-blob",
    "--default-character-set=utf8mb4",
)
# The transaction has begun before the first table is described.
BEGUN = b"\n-- Table structure for table"
# mariadb-dump's last line, which one that was cut off has not.
COMPLETED = b"-- Dump completed"
# Jobs' scripts and environments.
SCRIPTS = "hash."


def files(spool: Path, paths: Iterable[str], optional: Iterable[str]) -> list[Member]:
    """Files, and folders with all that is in them. Raises Refused where one is missing."""
    members: list[Member] = []
    for path in map(Path, paths):
        if not os.path.lexists(path):
            raise Refused(f"{path} is to be kept and is not there; take it out of backup_files")
        members += _tree(path, spool, manifest.FILES)
    for path in map(Path, optional):
        if os.path.lexists(path):
            members += _tree(path, spool, manifest.FILES)
    return list({member.path: member for member in members}.values())


def _tree(path: Path, spool: Path, part: str) -> Iterator[Member]:
    place = Path(part, *path.parts[1:])
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        (spool / place).mkdir(parents=True, exist_ok=True)
        yield _member(place, manifest.FOLDER, 0, "", status)
        for inner in sorted(path.iterdir()):
            yield from _tree(inner, spool, part)
    elif stat.S_ISLNK(status.st_mode):
        target = os.readlink(path)
        (spool / place).parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(spool / place):
            os.symlink(target, spool / place)
        digest = hashlib.sha256(target.encode()).hexdigest()
        yield _member(place, manifest.LINK, 0, digest, status)
    elif stat.S_ISREG(status.st_mode):
        yield copied(path, spool, place)
    # Sockets and pipes are made anew by whoever listens.


def copied(path: Path, spool: Path, place: Path) -> Member:
    """One regular file, through no link. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    (spool / place).parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with open(descriptor, "rb") as source, open(spool / place, "wb") as copy:
        status = os.fstat(source.fileno())
        while piece := source.read(PIECE):
            digest.update(piece)
            size += copy.write(piece)
    return _member(place, manifest.FILE, size, digest.hexdigest(), status)


def _member(place: Path, kind: str, size: int, sha256: str, status: os.stat_result) -> Member:
    mode = stat.S_IMODE(status.st_mode)
    owner, group = _user(status.st_uid), _group(status.st_gid)
    return Member(place.as_posix(), kind, size, sha256, mode, owner, group)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


# --- slurmctld's state ----------------------------------------------------------------------------


def state(spool: Path, folder: Path) -> list[Member]:
    """The queue, while slurmctld writes on. Raises Refused where there is none.

    slurmctld replaces each file whole. It writes a job's script before the job's line and removes
    it after: so scripts are copied before the lines and, for the newest jobs, once more after.
    """
    if not (folder / "clustername").is_file():
        raise Refused(
            f"{folder} has no state of slurmctld; start slurmctld, or correct backup_state_folder"
        )
    names = sorted(path.name for path in folder.iterdir())
    scripts = [name for name in names if name.startswith(SCRIPTS)]
    lines = [name for name in names if not name.startswith(SCRIPTS)]
    members: dict[str, Member] = {}
    for name in (*scripts, *lines, *scripts):
        for member in _live(folder / name, folder, spool):
            members.setdefault(member.path, member)
    return list(members.values())


def _live(path: Path, folder: Path, spool: Path) -> Iterator[Member]:
    """What vanishes meanwhile was a job's that has ended; half-written files have another name."""
    place = Path(manifest.STATE, path.relative_to(folder))
    try:
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            (spool / place).mkdir(parents=True, exist_ok=True)
            yield _member(place, manifest.FOLDER, 0, "", status)
            for inner in sorted(path.iterdir()):
                yield from _live(inner, folder, spool)
        elif (
            stat.S_ISREG(status.st_mode) and path.suffix != ".new" and not (spool / place).exists()
        ):
            yield copied(path, spool, place)
    except FileNotFoundError:
        return


# --- databases ------------------------------------------------------------------------------------


@contextmanager
def dumping(spool: Path, name: str, command: Sequence[str] = DUMP) -> Iterator[list[Member]]:
    """Dumps a database of this host's MariaDB, as it is when the block begins.

    The list has the dump once the block has ended. Raises Refused.
    """
    dump = _Dump(spool, name, command)
    dump.start()
    dump.begun.wait()
    members: list[Member] = []
    try:
        yield members
    finally:
        dump.join()
    members.append(dump.member())


class _Dump(threading.Thread):
    def __init__(self, spool: Path, name: str, command: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.begun = threading.Event()
        self._name, self._command = name, [*command, name]
        self._place = Path(manifest.DATABASE, f"{name}.sql.gz")
        self._path = spool / self._place
        self._problem = f"the dump of the database {name} did not begin"

    def run(self) -> None:
        try:
            self._problem = self._dump()
        except OSError as error:
            self._problem = f"the dump of the database {self._name} failed: {error}"
        finally:
            self.begun.set()

    def _dump(self) -> str:
        """What went wrong; "" where nothing did."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        last = b""
        with tempfile.TemporaryFile() as complaints:
            with (
                subprocess.Popen(
                    self._command, stdout=subprocess.PIPE, stderr=complaints
                ) as process,
                gzip.open(self._path, "wb", compresslevel=6) as file,
            ):
                assert process.stdout is not None
                while piece := process.stdout.read1(PIECE):  # type: ignore[attr-defined]
                    file.write(piece)
                    if not self.begun.is_set() and BEGUN in last + piece:
                        self.begun.set()
                    last = (last + piece)[-4096:]
            complaints.seek(0)
            said = printable(complaints.read().decode(errors="replace"), 300)
        if process.returncode != 0:
            return f"{self._command[0]} of {self._name} failed: {said or process.returncode}"
        if not last.rstrip().rpartition(b"\n")[2].startswith(COMPLETED):
            return f"the dump of the database {self._name} does not end with `-- Dump completed`"
        return ""

    def member(self) -> Member:
        """Raises Refused."""
        if self._problem:
            raise Refused(self._problem)
        status = self._path.stat()
        return _member(self._place, manifest.FILE, status.st_size, sha256(self._path), status)


def sqlite(spool: Path, paths: Iterable[str]) -> list[Member]:
    """SQLite's own copy of each database, which is of one moment while its daemon writes on."""
    members = []
    for path in map(Path, paths):
        if not path.is_file():
            raise Refused(f"{path} is to be kept and is not there; take it out of backup_sqlite")
        place = Path(manifest.SQLITE, *path.parts[1:])
        (spool / place).parent.mkdir(parents=True, exist_ok=True)
        try:
            with (
                closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(spool / place)) as copy,
            ):
                source.backup(copy)
        except sqlite3.Error as error:
            raise Refused(f"{path} cannot be copied: {error}") from None
        size = (spool / place).stat().st_size
        # Owner and mode are those of the database.
        members.append(_member(place, manifest.FILE, size, sha256(spool / place), path.stat()))
    return members


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()
