"""On the control node: decrypts archives, checks them, and judges whether they may be restored."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cluster.slurm.keys import RELEASES
from roles.backup.files.backup import collect, kept, manifest, sealed
from roles.backup.files.backup.errors import Refused
from roles.backup.files.backup.manifest import Manifest

# Archives of several hosts are one backup where they are of the same hour.
TOGETHER = timedelta(hours=1)
# How many releases back slurmctld and slurmdbd read what older ones wrote.
BACK, BACK_SINCE_24_11 = 2, 3


@dataclass(frozen=True)
class Opened:
    """An archive that was decrypted and is whole."""

    path: Path
    tar: Path
    about: Manifest


@dataclass(frozen=True)
class Wanted:
    """parts must all be there; release is that of the Slurm that reads them, "" if unknown."""

    cluster: str
    parts: tuple[str, ...]
    release: str
    max_age: timedelta


def keep(folder: Path, name: str, number: int) -> str:
    """Whether a fetched archive is whole; then those of its host go that are too many.

    Raises Refused.
    """
    path = folder / name
    told = path.with_name(f"{name}{kept.CHECKSUM}").read_text(encoding="utf-8").split()
    if not told or told[0] != collect.sha256(path):
        raise Refused(f"{path} has another SHA-256 than on its host; fetch it again")
    gone = kept.remove(folder, kept.whose(name), number)
    removed = f", and {len(gone)} older ones were removed" if gone else ""
    return f"{path} has {path.stat().st_size} bytes{removed}"


def archives(given: Path) -> list[Path]:
    """A file, or of a folder the newest archive of each host. Raises Refused."""
    if given.is_file():
        return [given]
    found = kept.newest(given) if given.is_dir() else []
    if not found:
        raise Refused(
            f"{given} is no archive and no folder with archives; set backup_restore_from to one"
        )
    return found


def unpack(
    paths: Iterable[Path], identity: Path, into: Path, wanted: Wanted, age: str, now: datetime
) -> list[Opened]:
    """Raises Refused."""
    if not identity.is_file():
        raise Refused(f"{identity} is no file; set backup_restore_identity to that of the age key")
    opened = []
    for number, path in enumerate(paths):
        tar = into / f"{number}.tar"
        try:
            about = sealed.unseal(path, identity, tar, age)
            judge(about, wanted, now)
        except Refused as refused:
            raise Refused(f"{path} {refused}") from None
        opened.append(Opened(path, tar, about))
    _together(opened, wanted)
    return opened


def judge(about: Manifest, wanted: Wanted, now: datetime) -> None:
    """Raises Refused; the sentence goes on after the archive's name."""
    if about.cluster != wanted.cluster:
        raise Refused(
            f"is of the cluster {about.cluster}, and this is {wanted.cluster}; give one of its own"
        )
    if (age := now - about.time) > wanted.max_age:
        days = -(-age // timedelta(days=1))
        raise Refused(
            f"is of {about.time:%Y-%m-%d %H:%M} UTC, {age.days} days old, and "
            f"{wanted.max_age.days} are allowed; give a newer one, or set "
            f"backup_restore_max_age_days={days} to lose what came after it"
        )
    if sentence := unread(about.slurm, wanted.release):
        raise Refused(sentence)


def unread(archived: str, installed: str) -> str:
    """Why a Slurm cannot read what another one wrote; "" where it can, or where one is unknown."""
    order = list(map(str, RELEASES))
    if archived not in order or installed not in order:
        return ""
    back = order.index(installed) - order.index(archived)
    if back < 0:
        return (
            f"is of Slurm {archived}, and the host has {installed}, which cannot read newer files; "
            f"install Slurm {archived}"
        )
    if back > (BACK_SINCE_24_11 if installed >= "24.11" else BACK):
        return (
            f"is of Slurm {archived}, which Slurm {installed} can no longer read; install a "
            "release in between, restore, and upgrade"
        )
    return ""


def _together(opened: Sequence[Opened], wanted: Wanted) -> None:
    """Each part once, all of one time. Raises Refused."""
    chosen = {}
    for part in wanted.parts:
        having = [one for one in opened if part in one.about.parts]
        if len(having) != 1:
            names = ", ".join(str(one.path) for one in having) or "none"
            raise Refused(
                f"the part {part} must be in one of the archives, and is in: {names}; "
                "give the archives of all hosts of one backup"
            )
        chosen[part] = having[0]
    times = [one.about.time for one in chosen.values()]
    if times and max(times) - min(times) > TOGETHER:
        raise Refused(
            "the archives are of different backups ("
            + ", ".join(f"{one.path.name}" for one in chosen.values())
            + "); give those of the same hour"
        )


def told(opened: Iterable[Opened]) -> str:
    """What was opened, for the playbook."""
    return json.dumps(
        [
            {
                "archive": str(one.path),
                "tar": str(one.tar),
                "host": one.about.host,
                "time": one.about.time.strftime("%Y-%m-%d %H:%M:%S UTC"),
                "slurm": one.about.slurm,
                "database": one.about.database,
                "next_job": one.about.next_job,
                "parts": list(one.about.parts),
            }
            for one in opened
        ]
    )


# --- secrets --------------------------------------------------------------------------------------


def secrets(tars: Iterable[Path], into: Path) -> list[str]:
    """Writes the secrets that the control node lacks, 0600; their names. Raises Refused."""
    found: dict[str, bytes] = {}
    for tar in tars:
        about = sealed.check(tar)
        contents = {
            member.path: file.read()
            for member, file in sealed.members(tar, manifest.FILES)
            if file is not None and member.path in _places(about.secrets)
        }
        for name, place in about.secrets.items():
            path, _, key = place.partition("#")
            content = contents.get(manifest.FILES + path)
            if content is not None and (value := _value(content, key)):
                found.setdefault(name, value)
    written = []
    os.makedirs(into, 0o700, exist_ok=True)
    for name, content in sorted(found.items()):
        if "/" not in name and not os.path.lexists(into / name):
            part = into / f".{name}.restoring"
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(content)
            part.rename(into / name)
            written.append(name)
    return written


def _places(places: Mapping[str, str]) -> set[str]:
    return {manifest.FILES + place.partition("#")[0] for place in places.values()}


def _value(content: bytes, key: str) -> bytes:
    """The file, or what it says of one key, without a line's end."""
    if not key:
        return content
    for line in content.splitlines():
        name, equals, value = line.partition(b"=")
        if equals and name.strip().decode(errors="replace") == key:
            return value.strip()
    return b""


def now() -> datetime:
    return datetime.now(timezone.utc)
