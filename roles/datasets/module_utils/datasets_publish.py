"""One version of a data set is fetched, unpacked, and named when it is whole.

Modules find it as ansible.module_utils.datasets_publish.
"""

from __future__ import annotations

import errno
import grp
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ansible.module_utils.datasets_entry import MANIFEST, Dataset, File, Published
from ansible.module_utils.datasets_unpack import size_inside, unpack
from ansible.module_utils.download import NoFile, resume
from ansible.module_utils.published import WORK, amount
from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import OWN_FILE, Access, make_folder, write

EVERY = 10  # seconds between two lines of the log
OPEN, RESTRICTED, PRIVATE = 0o755, 0o750, 0o700


@dataclass(frozen=True)
class Settings:
    root: Path
    mounts: tuple[str, ...] = ()
    timeout: float = 60
    tries: int = 5
    pause: float = 2

    @property
    def work(self) -> Path:
        return Path(self.root, WORK)

    @property
    def log(self) -> Path:
        return self.work / "log"

    def folder(self, dataset: Dataset) -> Path:
        return Path(self.root, dataset.place)

    def work_of(self, dataset: Dataset) -> Path:
        return Path(self.work, dataset.place)


def access_of(readers: str) -> Access:
    """Of a version's folder. Raises Refused for a group that the host does not know."""
    if not readers:
        return Access(OPEN, os.geteuid(), os.getegid())
    try:
        return Access(RESTRICTED, os.geteuid(), grp.getgrnam(readers).gr_gid)
    except KeyError:
        raise Refused(
            f"the group {readers} does not exist on this host; create it (cluster_users_groups), "
            "or correct `readers`"
        ) from None


@dataclass
class Log:
    """Where whoever waits can look."""

    path: Path
    title: str = ""
    said: float = 0
    began: float = 0
    from_byte: int = 0

    def begin(self, title: str, there: int) -> None:
        self.title, self.began, self.said, self.from_byte = title, time.monotonic(), 0, there

    def told(self, there: int, whole: int | None) -> None:
        now = time.monotonic()
        if now - self.said < EVERY:
            return
        self.said = now
        speed = max(0, there - self.from_byte) / max(now - self.began, 0.001)
        of = f" of {amount(whole)} ({there / whole:.0%})" if whole else ""
        self.say(f"{amount(there)}{of}, {amount(speed)}/s")

    def say(self, text: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self.title}: {text}\n")


def names(work: Path, file: File) -> tuple[Path, Path]:
    """Of the file that was verified, and of what came of it until then."""
    done = work / f"{file.sha256[:16]}-{file.name}"
    return done, done.with_name(f"{done.name}.part")


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def bring(dataset: Dataset, file: File, settings: Settings, log: Log) -> Path:
    """The file, fetched and verified. Raises Refused; what came stays for the next run."""
    done, part = names(settings.work_of(dataset), file)
    if done.exists():
        return done
    problem = ""
    for url in (file.url, *file.mirrors):
        # What two servers, or one at two times, sent together may be neither's file.
        for there in (size_of(part), 0) if part.exists() else (0,):
            log.begin(f"{dataset.title}: {file.name} from {urlsplit(url).netloc or url}", there)
            try:
                sha256 = resume(
                    url, part, settings.timeout, log.told, settings.tries, settings.pause
                )
            except NoFile as error:
                problem = problem or str(error)
                log.say(str(error))
                break
            if sha256 == file.sha256:
                part.replace(done)
                log.say(f"{amount(size_of(done))}, verified")
                return done
            part.unlink()
            problem = (
                f"{url} has the SHA-256 {sha256}, and {file.sha256} is declared; nothing was "
                "published: correct the address or the hash"
            )
            log.say(problem)
    raise Refused(problem)


def publish(dataset: Dataset, settings: Settings, log: Log) -> None:
    """Fetches, unpacks and names one version. Raises Refused, and OSError of the disk."""
    work, folder = settings.work_of(dataset), settings.folder(dataset)
    make_folder(work, Access(PRIVATE, os.geteuid(), os.getegid()))
    expected = {path.name for file in dataset.files for path in names(work, file)}
    for path in work.iterdir():
        if path.name not in expected:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    brought = [(file, bring(dataset, file, settings, log)) for file in dataset.files]
    new = work / "new"
    new.mkdir(mode=PRIVATE)
    log.title = dataset.title
    for file, path in brought:
        _put(file, path, new, log)
    if (new / MANIFEST).exists():
        raise Refused(f"{dataset.title}: it contains {MANIFEST}, which is the manifest's name")
    files, size = _measured(new)
    made = Published(dataset, time.strftime("%Y-%m-%d"), files, size)
    write(new / MANIFEST, made.text(), OWN_FILE)
    access_of(dataset.readers).grant(new)
    os.sync()  # the name is for what is on the disk
    make_folder(folder.parent, Access(OPEN, os.geteuid(), os.getegid()))
    new.rename(folder)
    shutil.rmtree(work)
    with suppress(OSError):  # another version is on its way
        work.parent.rmdir()
    log.say(f"published, {files} files, {amount(size)}")


def _put(file: File, path: Path, new: Path, log: Log) -> None:
    """Unpacks a file into the new folder, or puts it there as it is."""
    below = new / file.folder
    make_folder(below, Access(OPEN, os.geteuid(), os.getegid()))
    if file.archive == "none":
        OWN_FILE.grant(path)
        place = below / file.name
        try:
            place.hardlink_to(path)  # it stays where it is too, until all is done
        except OSError as error:
            if error.errno == errno.EEXIST:
                raise
            path.rename(place)
        return
    inside = size_inside(path, file.archive)
    disk = os.statvfs(new)
    if inside > disk.f_bavail * disk.f_frsize:
        raise Refused(
            f"{new} has {amount(disk.f_bavail * disk.f_frsize)} free, and {amount(inside)} are in "
            f"{file.name}; make room and run again, which fetches nothing twice"
        )
    log.say(f"{file.name} is unpacked")
    unpack(path, file.archive, below, file.name)


def _measured(folder: Path) -> tuple[int, int]:
    """Files below a folder, and their bytes. No link is followed."""
    files = size = 0
    for where, _, inside in os.walk(folder):
        files += len(inside)
        size += sum(os.lstat(os.path.join(where, name)).st_size for name in inside)
    return files, size
