#!/usr/bin/python
"""Publishes versions of data sets: each is fetched, verified, unpacked, and there at once.

All work is done in a folder beside the published ones, which only root enters. What was fetched of
a file stays there until its version has its name, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import errno
import grp
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.datasets_entry import (
    MANIFEST,
    Dataset,
    File,
    Published,
    dataset_of,
    published_of,
)
from ansible.module_utils.datasets_pages import GROUP, MODULEFILES, pages
from ansible.module_utils.datasets_unpack import size_inside, unpack
from ansible.module_utils.download import NoFile, disk_problem, length, resume
from ansible.module_utils.published import PAGE, WORK, amount, check_root, held, is_ours
from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import OWN_FILE, Access, differs, make_folder, surplus, write

DOCUMENTATION = r"""
module: datasets
short_description: Publish versions of data sets on a shared filesystem
description:
  - Fetches, verifies and unpacks what is declared and not there, and gives it its name at once.
  - Removes a version that is declared with C(state=absent), and none besides. Each has a manifest.
  - Is refused, with a sentence for each reason and nothing fetched, where that can be known.
  - In check mode servers are asked how much there is, and nothing is fetched.
options:
  root:
    description: The folder of all data sets.
    type: path
    required: true
  published:
    description: The versions; the role's argument specs describe an entry.
    type: list
    elements: dict
    required: true
  mounts:
    description: Paths of filesystems; the one that the root is below must be mounted on this host.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds of silence after which a connection is given up.
    type: int
    default: 60
  tries:
    description: Connections in a row that may break off without having brought anything.
    type: int
    default: 5
author: The Plumbline authors
"""

RETURN = r"""
pending:
  description: Whether something would be done, in check mode.
  type: bool
  returned: success
steps:
  description: What was done, or would be in check mode, a line each.
  type: list
  elements: str
  returned: success
"""

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


@dataclass(frozen=True)
class Step:
    """What is done with one version: fetch, describe, open or remove."""

    action: str
    dataset: Dataset
    text: str


# --- what is there -------------------------------------------------------------------------------


def survey(root: Path) -> dict[str, Published]:
    """The versions that are there, by their place below the root."""
    found = {}
    for path in sorted(root.glob(f"[!.]*/[!.]*/{MANIFEST}")):
        with suppress(ValueError):
            found[path.parent.relative_to(root).as_posix()] = published_of(path.read_text("utf-8"))
    return found


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


# --- what is to be done --------------------------------------------------------------------------


def plan(wanted: Iterable[Dataset], unwanted: Iterable[Dataset], settings: Settings) -> list[Step]:
    """Removals first, for they make room. Raises Refused."""
    there = survey(settings.root)
    steps, problems = [], []
    for dataset in unwanted:
        if str(dataset.place) in there:
            steps.append(Step("remove", there[str(dataset.place)].dataset, "is removed"))
        elif os.path.lexists(settings.folder(dataset)):
            problems.append(_foreign(settings, dataset))
    for dataset in wanted:
        try:
            steps += _steps_of(dataset, there.get(str(dataset.place)), settings)
        except Refused as refused:
            problems += [f"{dataset.title}: {sentence}" for sentence in refused.sentences]
    if problems:
        raise Refused(*problems)
    return steps


def _foreign(settings: Settings, dataset: Dataset) -> str:
    return (
        f"{settings.folder(dataset)} is there and was not published from a declaration; move it "
        "away, or choose another version"
    )


def _steps_of(dataset: Dataset, there: Published | None, settings: Settings) -> Iterator[Step]:
    folder = settings.folder(dataset)
    access = access_of(dataset.readers)
    if there is None:
        if os.path.lexists(folder):
            raise Refused(_foreign(settings, dataset))
        yield Step("fetch", dataset, "is fetched")
        return
    if there.dataset.content != dataset.content:
        published = ", ".join(sorted(file.sha256[:12] for file in there.dataset.files))
        declared = ", ".join(sorted(file.sha256[:12] for file in dataset.files))
        raise Refused(
            f"it is published since {there.date} with the files {published} (SHA-256), and "
            f"{declared} are declared; a version never changes: give it a new version"
        )
    if there.dataset != dataset:
        yield Step("describe", dataset, "gets its new description")
    if not access.holds(folder.lstat()):
        readers = f"the group {dataset.readers}" if dataset.readers else "everybody"
        yield Step("open", dataset, f"is readable for {readers}")


# --- room ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """Bytes that one version takes: while it is fetched and unpacked, and when it is there."""

    dataset: Dataset
    fetch: int
    peak: int
    stay: int


def need_of(dataset: Dataset, settings: Settings) -> Need:
    """As the servers say. Raises Refused where one does not have the file."""
    fetch = kept = inside = 0
    for file in dataset.files:
        whole = _offered(file, settings) or 0
        done, part = names(settings.work_of(dataset), file)
        here = whole if done.exists() else _size(part)
        fetch += max(0, whole - here)
        kept += whole if file.archive == "none" else 0
        inside += whole if file.archive != "none" else 0
    # Without a declared size an archive takes its own once more, at least.
    unpacked = max(0, dataset.size - kept) if dataset.size else inside
    return Need(dataset, fetch, fetch + unpacked, kept + unpacked)


def _offered(file: File, settings: Settings) -> int | None:
    problem = None
    for url in (file.url, *file.mirrors):
        try:
            offered: int | None = length(url, settings.timeout)
            return offered
        except NoFile as error:
            problem = problem or error
    raise Refused(str(problem))


def check_room(needs: Sequence[Need], removed: int, root: Path) -> None:
    """Refuses, before anything is fetched, what does not fit one after another."""
    there = next(path for path in (root, *root.parents) if path.exists())
    disk = os.statvfs(there)
    free = disk.f_bavail * disk.f_frsize + removed
    taken = 0
    for need in needs:
        if taken + need.peak > free:
            raise Refused(
                f"{root} has {amount(free)} free, and {amount(taken + need.peak)} are needed until "
                f"{need.dataset.title} is fetched and unpacked; make room, or leave it out"
            )
        taken += need.stay


# --- doing it ------------------------------------------------------------------------------------


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


def _size(path: Path) -> int:
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
        for there in (_size(part), 0) if part.exists() else (0,):
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
                log.say(f"{amount(_size(done))}, verified")
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


def describe(dataset: Dataset, settings: Settings) -> None:
    path = settings.folder(dataset) / MANIFEST
    there = published_of(path.read_text("utf-8"))
    write(path, replace(there, dataset=dataset).text(), OWN_FILE)


def remove(dataset: Dataset, settings: Settings) -> None:
    """At once for whoever looks; then its files go. A run that died in between is finished."""
    gone = settings.work / "removed"
    make_folder(gone, Access(PRIVATE, os.geteuid(), os.getegid()))
    settings.folder(dataset).rename(gone / f"{dataset.name}-{dataset.version}-{time.time_ns()}")
    shutil.rmtree(gone)


def do(step: Step, settings: Settings, log: Log) -> None:
    if step.action == "fetch":
        publish(step.dataset, settings, log)
    elif step.action == "describe":
        describe(step.dataset, settings)
    elif step.action == "open":
        access_of(step.dataset.readers).grant(settings.folder(step.dataset))
    else:
        remove(step.dataset, settings)


def do_all(steps: Iterable[Step], settings: Settings, log: Log) -> None:
    """A version that cannot be had does not keep the others away. Raises Refused, OSError."""
    problems: list[str] = []
    for step in steps:
        try:
            do(step, settings, log)
        except Refused as refused:
            problems += refused.sentences
    if problems:
        raise Refused(*problems)


# --- pages and leftovers -------------------------------------------------------------------------


def leftovers(wanted: Iterable[Dataset], settings: Settings) -> list[Path]:
    """What was fetched for versions that are declared no more, and what a removal left."""
    keep = {settings.work_of(dataset) for dataset in wanted}
    return [
        path
        for path in sorted(settings.work.glob("*/*"))
        if path not in keep and path.parent.is_dir()
    ]


def write_pages(published: Iterable[Published], settings: Settings, check_mode: bool) -> list[str]:
    """Brings pages and modulefiles to what is there; the paths that differ."""
    root = settings.root
    files = pages(root, published)
    patterns = [f"*/{PAGE}", f"{MODULEFILES}/{GROUP}/*/*.lua"]
    stale = [
        name
        for name in surplus(root, files, patterns)
        if name.startswith(MODULEFILES) or is_ours(root / name)
    ]
    different = [name for name, text in files.items() if differs(root / name, text, OWN_FILE)]
    if not check_mode:
        for name in different:
            write(root / name, files[name], OWN_FILE)
        for name in stale:
            (root / name).unlink(missing_ok=True)
            with suppress(OSError):  # others are in it
                (root / name).parent.rmdir()
    return sorted(different + stale)


# --- the whole -----------------------------------------------------------------------------------


def run(
    entries: Sequence[Mapping[str, Any]], settings: Settings, check_mode: bool
) -> dict[str, Any]:
    """The module's result. Raises Refused, and OSError of the disk."""
    wanted: list[Dataset] = []
    unwanted: list[Dataset] = []
    for entry in entries:
        gone = entry.get("state") == "absent"
        (unwanted if gone else wanted).append(dataset_of(entry))
    check_root(settings.root, settings.mounts, "datasets")
    if check_mode:
        steps, needs, leftover = _all(wanted, unwanted, settings)
        changed_pages = write_pages(survey(settings.root).values(), settings, check_mode=True)
    else:
        with held(settings.root, "datasets"):
            settings.log.write_text("", "utf-8")
            log = Log(settings.log)
            steps, needs, leftover = _all(wanted, unwanted, settings)
            try:
                do_all(steps, settings, log)
            finally:  # those that were published have their pages
                there = survey(settings.root).values()
                changed_pages = write_pages(there, settings, check_mode=False)
            for path in leftover:
                shutil.rmtree(path)
                with suppress(OSError):
                    path.parent.rmdir()
    fetched = {need.dataset: need.fetch for need in needs}
    lines = [_line(step, fetched) for step in steps]
    lines += [f"{path} is removed, which no entry asks for" for path in leftover]
    return {
        "changed": bool(lines or changed_pages),
        "pending": bool(lines or changed_pages) and check_mode,
        "steps": lines,
        "diff": {"prepared": "".join(f"{line}\n" for line in lines + changed_pages)},
    }


def _all(
    wanted: Sequence[Dataset], unwanted: Sequence[Dataset], settings: Settings
) -> tuple[list[Step], list[Need], list[Path]]:
    steps = plan(wanted, unwanted, settings)
    needs = [need_of(step.dataset, settings) for step in steps if step.action == "fetch"]
    there = survey(settings.root)
    removed = sum(there[str(step.dataset.place)].bytes for step in steps if step.action == "remove")
    check_room(needs, removed, settings.root)
    return steps, needs, leftovers(wanted, settings)


def _line(step: Step, fetched: Mapping[Dataset, int]) -> str:
    if step.action != "fetch":
        return f"{step.dataset.title} {step.text}"
    places = {urlsplit(file.url).netloc or "this host" for file in step.dataset.files}
    size = amount(fetched[step.dataset]) if fetched[step.dataset] else "of unknown size"
    return f"{step.dataset.title} {step.text}: {size} from {', '.join(sorted(places))}"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "published": {"type": "list", "elements": "dict", "required": True},
            "mounts": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 60},
            "tries": {"type": "int", "default": 5},
        },
        supports_check_mode=True,
    )
    options = module.params
    settings = Settings(
        Path(options["root"]), tuple(options["mounts"]), options["timeout"], options["tries"]
    )
    try:
        result = run(options["published"], settings, module.check_mode)
    except Refused as problem:
        module.fail_json(msg=f"datasets: {problem}.")
    except OSError as error:
        module.fail_json(
            msg=f"datasets: {error.filename or settings.root}: {disk_problem(error)}; what was "
            "published before is as it was."
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
