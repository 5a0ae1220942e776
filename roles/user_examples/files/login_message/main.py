"""login-message: what a login shows, without ever holding it up.

Partitions with what is free, the user's jobs, maintenance that is coming, the room for files, and
where to read on. All questions are asked at once and have two seconds; what stays without an answer
is left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence

from cluster.text import printable
from roles.user_examples.files.login_message import disks, slurm
from roles.user_examples.files.login_message.asking import ask

_UNITS = ("B", "K", "M", "G", "T", "P")


def main(arguments: Sequence[str]) -> int:
    """Arguments: how many days before maintenance is told, and what the site says besides."""
    days, *lines = arguments
    places, kept = {"home": os.environ.get("HOME", "/")}, disks.scratch()
    if kept is not None:
        places["scratch"] = kept.root
    try:
        with open(disks.MOUNTS, encoding="utf-8", errors="replace") as file:
            mounts = file.read()
    except OSError:
        mounts = ""
    questions = {
        "sinfo": slurm.SINFO,
        "squeue": slurm.SQUEUE,
        **({"reservations": slurm.RESERVATIONS} if float(days) > 0 else {}),
        **disks.questions(places, mounts, os.environ.get("USER", str(os.getuid()))),
    }
    answers = ask(questions, {**os.environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"})
    for line in message(answers, places, kept, mounts, float(days), time.time()):
        print(line)
    for line in lines:
        print(printable(line))
    return 0


def message(
    answers: Mapping[str, str],
    places: Mapping[str, str],
    scratch: disks.Scratch | None,
    mounts: str,
    maintenance_days: float,
    now: float,
) -> Iterator[str]:
    yield from slurm.partitions(answers.get("sinfo", ""))
    if "squeue" in answers:
        yield slurm.jobs(answers["squeue"])
    coming = slurm.maintenance(answers.get("reservations", ""), now, maintenance_days)
    yield from slurm.sentences(coming, now)
    for name, path in places.items():
        room = disks.room(name, path, mounts, answers)
        if name == "scratch":
            yield _scratch(path, scratch, room)
        elif room is not None:
            yield f"Your {name}: {_free(room)}"


def _scratch(path: str, scratch: disks.Scratch | None, room: disks.Room | None) -> str:
    words = [f"Scratch: {printable(path)}"]
    if room is not None:
        words.append(_free(room))
    if scratch is not None and scratch.keep_days:
        words.append(f"files without use for {scratch.keep_days} days are deleted")
    return ", ".join(words)


def _free(room: disks.Room) -> str:
    of = " of your quota" if room.of_quota else ""
    return f"{_size(room.free)} of {_size(room.size)}{of} free"


def _size(count: float) -> str:
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f}{_UNITS[unit]}" if count >= 10 or not unit else f"{count:.1f}{_UNITS[unit]}"
