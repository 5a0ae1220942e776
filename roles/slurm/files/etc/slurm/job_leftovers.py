#!/usr/bin/python3 -IS
"""Removes from a node what a user's jobs left there, when the last of them has ended.

Slurm runs it as a prolog and as an epilog, and says which in SLURM_SCRIPT_CONTEXT. Before a job
it writes /run/plumbline/jobs/JOB with the user, and the time from which on the user's files count
as those of jobs. After the user's last job here, it removes what is the user's and not older: files
of world-writable folders, POSIX message queues, SysV shared memory, queues and semaphores.

It leaves everything alone where it cannot know: of system accounts, of a user with a process here
(a login, a service), and where a job runs that began without it. Whatever it removes it removes
with the rights of that user, so that nothing prepared can lead it to others' files. It never fails:
what is left does not drain a node.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import syslog
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FIRST_USER, NOBODY = 1000, 65534
PATIENCE = 100  # seconds: the node is COMPLETING meanwhile
KINDS = {"shm": "--shmem-id", "msg": "--queue-id", "sem": "--semaphore-id"}
IDS = {"shm": "shmid", "msg": "msqid", "sem": "semid"}
STEP = re.compile(rb"slurmstepd: \[(\d+)")


@dataclass(frozen=True)
class Places:
    """Where things are; tests have others."""

    jobs: Path = Path("/run/plumbline/jobs")
    proc: Path = Path("/proc")
    folders: tuple[str, ...] = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")


@dataclass(frozen=True)
class Presence:
    """A user's job on this node."""

    user: int
    since: int  # seconds; when the first of the user's jobs that follow one another began

    @staticmethod
    def read(text: str) -> Presence | None:
        words = text.split()
        return Presence(*map(int, words)) if len(words) == 2 and "".join(words).isdigit() else None


def presences(places: Places) -> dict[str, Presence | None]:
    """By job; None for a file that says nothing."""
    return {path.name: Presence.read(path.read_text()) for path in places.jobs.glob("[0-9]*")}


def begin(job: str, user: int, places: Places, now: int) -> None:
    same = [other.since for other in presences(places).values() if other and other.user == user]
    part = places.jobs / f".{job}"
    part.write_text(f"{user} {min([now, *same])}\n")
    part.rename(places.jobs / job)


def end(job: str, user: int, places: Places) -> Presence | None:
    """What to remove: nothing while the user may still need it."""
    jobs = presences(places)
    (places.jobs / job).unlink(missing_ok=True)
    mine = jobs.pop(job, None)
    if mine is None or mine.user != user or not FIRST_USER <= user != NOBODY:
        return None
    if any(other is None or other.user == user for other in jobs.values()):
        return None
    if set(steps(places)) - {job} - set(jobs) or user in users(places):
        return None
    return mine


def _processes(places: Places) -> Iterator[tuple[int, Path]]:
    """(real user, folder) of each process."""
    for folder in places.proc.glob("[0-9]*"):
        try:
            status = (folder / "status").read_text(errors="replace")
        except OSError:  # it has ended
            continue
        # From the second line on: the first has a name that the process chose.
        match = re.search(r"^Uid:\t(\d+)", status.partition("\n")[2], re.MULTILINE)
        if match:
            yield int(match[1]), folder


def users(places: Places) -> set[int]:
    """Who has a process here that may still need its files.

    A user's service manager needs none. slurmd's `su` for `sbatch --export=ALL,NAME=VALUE` starts
    one, and it stays for ten seconds.
    """
    return {user for user, folder in _processes(places) if not _is_manager(user, folder)}


def _is_manager(user: int, folder: Path) -> bool:
    try:
        groups = (folder / "cgroup").read_text()
    except OSError:  # it has ended
        return False
    return f"/user@{user}.service/init.scope\n" in groups


def steps(places: Places) -> Iterator[str]:
    """The jobs that have a slurmstepd; one that is not root's is none."""
    for user, folder in _processes(places):
        try:
            match = user == 0 and STEP.match((folder / "cmdline").read_bytes())
        except OSError:
            continue
        if match:
            yield match[1].decode()


def objects(kind: str, presence: Presence, places: Places) -> Iterator[str]:
    """Numbers of the SysV objects of one kind that are the user's and not older."""
    try:
        head, *lines = (places.proc / "sysvipc" / kind).read_text().splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        row = dict(zip(head.split(), line.split()))  # noqa: B905 (a newer kernel may have more columns)
        if int(row["uid"]) == presence.user and int(row["ctime"]) >= presence.since:
            yield row[IDS[kind]]


def commands(presence: Presence, places: Places) -> Iterator[list[str]]:
    folders = [folder for folder in places.folders if os.path.isdir(folder)]
    find = ["find", *folders, "-xdev", "-mindepth", "1", "-user", str(presence.user)]
    # A folder that its owner cannot enter is not emptied.
    yield [*find, "-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";"]
    yield [*find, "-newerct", f"@{presence.since}", "-delete"]
    for kind, option in KINDS.items():
        for number in objects(kind, presence, places):
            yield ["ipcrm", option, number]


def remove(presence: Presence, places: Places) -> None:
    for command in commands(presence, places):
        subprocess.run(
            command,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            user=presence.user,
            group=NOBODY,
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )


def main(environment: Mapping[str, str], places: Places) -> None:
    job, user = environment["SLURM_JOB_ID"], int(environment["SLURM_JOB_UID"])
    places.jobs.mkdir(parents=True, exist_ok=True)
    places.jobs.chmod(0o700)
    # A job of the same user that begins now waits, and what it makes is not removed.
    with (places.jobs / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if environment["SLURM_SCRIPT_CONTEXT"] == "prolog_slurmd":
            begin(job, user, places, int(time.time()))
        elif presence := end(job, user, places):
            remove(presence, places)


if __name__ == "__main__":
    try:
        main(os.environ, Places())
    except Exception as problem:  # a prolog or epilog that fails drains the node
        syslog.openlog("plumbline-job-leftovers", facility=syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_WARNING, f"nothing removed: {problem!r}")
