"""Makes one archive of this host, copies it to where the site says, and lets old ones go."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from cluster import processes, version
from cluster.files import write_whole
from roles.backup.files.backup import collect, kept, manifest, sealed
from roles.backup.files.backup.errors import Refused
from roles.backup.files.backup.manifest import Manifest, Member
from roles.backup.files.backup.settings import Settings

ASK_S = 20.0
COPY_S = 6 * 3600.0
METRICS = {
    "plumbline_backup_last_success_timestamp_seconds": "When the last backup began that succeeded.",
    "plumbline_backup_size_bytes": "Size of the last archive.",
    "plumbline_backup_duration_seconds": "How long the last backup took.",
}


@dataclass(frozen=True)
class Made:
    """An archive that is whole, and was copied to where the site says."""

    path: Path
    size: int
    seconds: float
    removed: tuple[str, ...]

    def text(self) -> str:
        return json.dumps(
            {
                "archive": str(self.path),
                "size": self.size,
                "seconds": round(self.seconds, 1),
                "removed": list(self.removed),
            }
        )


def make(settings: Settings) -> Made:
    """Raises Refused; the archives of before are all there then."""
    before = os.umask(0o077)
    try:
        return _make(settings)
    finally:
        os.umask(before)


def _make(settings: Settings) -> Made:
    started = time.monotonic()
    settings.folder.mkdir(parents=True, exist_ok=True)
    with _alone(settings.folder):
        for left in settings.folder.glob(f"*{kept.PART}"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        now = datetime.now(tz=timezone.utc).replace(microsecond=0)
        path = settings.folder / kept.name(settings.cluster, settings.host, now)
        part = path.with_name(f"{path.name}{kept.PART}")
        # In the folder itself: what is kept is as large as what /tmp may not hold.
        with tempfile.TemporaryDirectory(suffix=kept.PART, dir=settings.folder) as spool:
            about = _about(settings, now, Path(spool))
            sealed.seal(Path(spool), about, settings.recipients, part)
        checksum = path.with_name(f"{path.name}{kept.CHECKSUM}")
        write_whole(checksum, f"{collect.sha256(part)}  {path.name}\n", 0o600, sync=True)
        part.rename(path)
        _copy(settings, path, checksum)
        removed = kept.remove(settings.folder, f"{settings.cluster}-{settings.host}", settings.keep)
        made = Made(path, path.stat().st_size, time.monotonic() - started, removed)
        _tell(settings, now, made)
    return made


def _about(settings: Settings, now: datetime, spool: Path) -> Manifest:
    members: list[Member] = []
    job = 0
    try:
        if settings.database:
            with collect.dumping(spool, settings.database) as dumped:
                job, queue = _queue(settings, spool)
            members += [*dumped, *queue]
        else:
            job, members = _queue(settings, spool)
        members += collect.files(spool, settings.files, settings.optional_files)
        members += collect.sqlite(spool, settings.sqlite)
    except OSError as error:
        raise Refused(f"what belongs in the archive cannot be copied: {error}") from None
    there = {member.path for member in members}
    return Manifest(
        format=manifest.FORMAT,
        cluster=settings.cluster,
        host=settings.host,
        time=now,
        version=version.VERSION,
        slurm=slurm_release(),
        database=settings.database,
        next_job=job,
        secrets={
            name: place
            for name, place in settings.secrets.items()
            if manifest.FILES + place.partition("#")[0] in there
        },
        members=tuple(members),
    )


def _queue(settings: Settings, spool: Path) -> tuple[int, list[Member]]:
    """The number is asked first: one that the state has already passed does no harm."""
    if not settings.state:
        return 0, []
    return next_job(), collect.state(spool, Path(settings.state))


def next_job() -> int:
    """The number that slurmctld gives next; 0 where it does not answer."""
    try:
        shown = processes.run(["scontrol", "show", "config"], ASK_S).stdout
    except processes.CommandFailed:
        return 0
    found = re.search(r"^NEXT_JOB_ID\s*=\s*(\d+)", shown, re.MULTILINE)
    return int(found[1]) if found else 0


def slurm_release() -> str:
    """Of what is installed here, such as 24.11; "" without Slurm."""
    for program in ("slurmctld", "slurmdbd"):
        try:
            shown = processes.run([program, "-V"], ASK_S).stdout
        except processes.CommandFailed:
            continue
        if found := re.search(r"\b(\d\d\.\d\d)\b", shown):
            return found[1]
    return ""


def _copy(settings: Settings, archive: Path, checksum: Path) -> None:
    if not settings.copy:
        return
    places = {"{archive}": str(archive), "{checksum}": str(checksum)}
    command = [places.get(word, word) for word in settings.copy]
    try:
        processes.run(command, COPY_S, own_session=True)
    except processes.CommandFailed as failed:
        raise Refused(f"{archive} was made and not copied, because {failed}") from None


def _tell(settings: Settings, now: datetime, made: Made) -> None:
    if settings.textfile:
        values = (now.timestamp(), made.size, round(made.seconds, 3))
        write_whole(
            Path(settings.textfile), textfile(dict(zip(METRICS, values, strict=True))), 0o644
        )


def textfile(values: Mapping[str, float]) -> str:
    return "".join(
        f"# HELP {name} {METRICS[name]}\n# TYPE {name} gauge\n{name} {value:.15g}\n"
        for name, value in values.items()
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("another backup of this host runs; wait for its end") from None
        yield
