"""Puts a part of an archive back on this host. What was there is kept under another name.

Each part is written under another name first and then takes its place at once: an interrupted run
leaves what was there.
"""

from __future__ import annotations

import grp
import gzip
import hashlib
import os
import pwd
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import BinaryIO

from cluster import processes
from roles.backup.files.backup import make, manifest, sealed, unpack
from roles.backup.files.backup.collect import PIECE
from roles.backup.files.backup.errors import Refused
from roles.backup.files.backup.manifest import Manifest, Member

ASK_S = 60.0
SWAP_S = 600.0
CLIENT = ("mariadb", "--batch", "--skip-column-names", "--default-character-set=utf8mb4")
_WORD = re.compile(r"[A-Za-z0-9_]+")


def database(tar: Path, name: str) -> str:
    """Loads the dump, then exchanges all tables at once; a sentence of what was done.

    Raises Refused.
    """
    about = sealed.check(tar)
    _stopped("slurmdbd")
    _readable(about)
    if not _WORD.fullmatch(name):
        raise Refused(f"the name {name} of a database is not made of letters, digits and _")
    new, before = f"{name}_restoring", f"{name}_before_{int(time.time())}"
    _sql(f"DROP DATABASE IF EXISTS `{new}`; CREATE DATABASE `{new}`")
    dumps = 0
    for member, file in sealed.members(tar, manifest.DATABASE):
        if member.path == f"{manifest.DATABASE}/{about.database}.sql.gz" and file is not None:
            dumps += 1
            _load(file, new)
    tables, old = _tables(new), _tables(name)
    if dumps != 1 or not tables:
        raise Refused(f"{tar} has no dump of a database with tables; give another archive")
    renames = [f"`{name}`.`{table}` TO `{before}`.`{table}`" for table in old]
    renames += [f"`{new}`.`{table}` TO `{name}`.`{table}`" for table in tables]
    _sql(
        f"CREATE DATABASE IF NOT EXISTS `{name}`; "
        + (f"CREATE DATABASE `{before}`; " if old else "")
        + f"RENAME TABLE {', '.join(renames)}; DROP DATABASE `{new}`",
        SWAP_S,
    )
    kept = f"; what was there is in the database {before}" if old else ""
    return f"{len(tables)} tables of {name} are those of {about.time:%Y-%m-%d %H:%M:%S} UTC{kept}"


def _load(file: BinaryIO, name: str) -> None:
    with subprocess.Popen(
        [*CLIENT, name], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            with gzip.open(file) as dump:
                shutil.copyfileobj(dump, process.stdin, PIECE)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it says why
        said = process.stderr.read().decode(errors="replace").strip()
    if process.returncode != 0:
        raise Refused(f"MariaDB does not take the dump: {said or process.returncode}")


def _tables(name: str) -> list[str]:
    shown = _sql(
        "SELECT table_name FROM information_schema.tables "
        f"WHERE table_schema = '{name}' AND table_type = 'BASE TABLE'"
    )
    return shown.split()


def _sql(statement: str, limit_s: float = ASK_S) -> str:
    try:
        return processes.run([*CLIENT, "--execute", statement], limit_s).stdout
    except processes.CommandFailed as failed:
        raise Refused(f"MariaDB on this host does not do it: {failed}") from None


# --- the queue ------------------------------------------------------------------------------------


def state(tar: Path, folder: Path) -> str:
    """Raises Refused."""
    about = sealed.check(tar)
    _stopped("slurmctld")
    _readable(about)
    new = folder.with_name(f"{folder.name}.restoring")
    if new.exists():
        shutil.rmtree(new)
    folder.parent.mkdir(parents=True, exist_ok=True)
    os.mkdir(new, 0o700)
    owner = ""
    for member, file in sealed.members(tar, manifest.STATE):
        path = new / Path(member.path).relative_to(manifest.STATE)
        _place(member, file, path)
        owner = owner or member.owner
    if not owner:
        raise Refused(f"{tar} has no state of slurmctld; give another archive")
    os.chown(new, _user(owner), _group(owner))
    os.chmod(new, 0o755)
    before = folder.with_name(f"{folder.name}.before-{int(time.time())}")
    kept = ""
    try:
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()  # the package's
        elif folder.exists():
            folder.rename(before)
            kept = f"; what was there is in {before}"
        new.rename(folder)
    except OSError as error:
        raise Refused(f"{folder} cannot be exchanged for {new}: {error}") from None
    return f"{folder} is that of {about.time:%Y-%m-%d %H:%M:%S} UTC{kept}"


def _place(member: Member, file: BinaryIO | None, path: Path) -> None:
    owner, group = _user(member.owner), _group(member.group)
    if member.kind == manifest.FOLDER:
        path.mkdir(parents=True, exist_ok=True)
    elif file is None or member.kind != manifest.FILE:
        raise Refused(f"{member.path} is no file; give another archive")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
            while piece := file.read(PIECE):
                digest.update(piece)
                copy.write(piece)
        if digest.hexdigest() != member.sha256:
            raise Refused(f"{member.path} has another hash than the manifest says")
    os.chown(path, owner, group)
    os.chmod(path, member.mode)


def _user(name: str) -> int:
    try:
        return int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Refused(f"this host has no user {name}; install Slurm first") from None


def _group(name: str) -> int:
    try:
        return int(name) if name.isdigit() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise Refused(f"this host has no group {name}; install Slurm first") from None


def _readable(about: Manifest) -> None:
    """A bare host could not be asked before Slurm was installed."""
    if sentence := unpack.unread(about.slurm, make.slurm_release()):
        raise Refused(f"the archive {sentence}")


def _stopped(unit: str) -> None:
    done = processes.run(["systemctl", "is-active", unit], ASK_S, any_status=True)
    if done.stdout.strip() in {"active", "activating", "reloading", "deactivating"}:
        raise Refused(f"{unit} runs on this host; stop it first")
