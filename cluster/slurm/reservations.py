"""Reservations as data, and as scontrol(1) takes them.

name, nodes      groups, NodeNames, host lists or ALL
users, accounts  who may use it; one of them at least
start            now, or a time such as 2026-12-01T08:00:00
duration         a time, or UNLIMITED; or
end              a time
flags, partition
state            absent removes it
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from cluster.hostlist import compress
from cluster.partitions import PartitionError, members

Reservation = Mapping[str, Any]

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?")
DURATION = re.compile(r"UNLIMITED|\d+|(\d+-)?\d\d?:\d\d(:\d\d)?", re.IGNORECASE)
NOW = "now"


def module_arguments(
    reservations: Sequence[Reservation],
    nodes: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """What the module slurm_reservations takes: nodes as a host list, lists as words."""
    return [
        {
            "name": reservation["name"],
            "absent": reservation.get("state") == "absent",
            "settings": {}
            if reservation.get("state") == "absent"
            else _settings(reservation, nodes, groups),
        }
        for reservation in reservations
    ]


def _settings(
    reservation: Reservation,
    nodes: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
) -> dict[str, str]:
    settings = {
        "Nodes": compress(members(_where(reservation), reservation, nodes, groups)),
        "PartitionName": reservation.get("partition") or "",
        "Users": ",".join(reservation.get("users") or []),
        "Accounts": ",".join(reservation.get("accounts") or []),
        "StartTime": _full(str(reservation.get("start") or NOW)),
        "Duration": str(reservation.get("duration") or ""),
        "EndTime": _full(str(reservation.get("end") or "")),
        "Flags": ",".join(reservation.get("flags") or []),
    }
    return {name: value for name, value in settings.items() if value}


def _full(moment: str) -> str:
    """A moment with its seconds, as scontrol prints it."""
    return f"{moment}:00" if moment.count(":") == 1 else moment


def _where(reservation: Reservation) -> str:
    return f"slurm_reservations: {reservation.get('name')}.nodes"


# --- what is wrong, as sentences -----------------------------------------------------------------


def problems(
    reservations: Sequence[Reservation],
    nodes: Sequence[Mapping[str, Any]],
    known: Mapping[str, Any],
) -> list[str]:
    """What cannot be reserved.

    known: groups, partitions; and users and accounts, of which all pass where none are declared
    """
    sentences: list[str] = []
    names = [str(reservation.get("name")) for reservation in reservations]
    sentences += [
        f"slurm_reservations has two with the name {name}; rename one."
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    for reservation in reservations:
        sentences += [
            f"slurm_reservations: {reservation.get('name')} {sentence}"
            for sentence in _problems(reservation, known)
        ]
        if reservation.get("state") != "absent" and reservation.get("nodes"):
            try:
                members(_where(reservation), reservation, nodes, known["groups"])
            except PartitionError as error:
                sentences.append(str(error))
    return sentences


def _problems(reservation: Reservation, known: Mapping[str, Any]) -> Iterator[str]:
    if not NAME.fullmatch(str(reservation.get("name"))):
        yield "is no name; begin with a letter, then letters, digits, dots and dashes."
    if reservation.get("state") == "absent":
        return
    if not reservation.get("nodes"):
        yield "has no nodes; name groups, NodeNames or ALL."
    if not (reservation.get("users") or reservation.get("accounts")):
        yield "is for nobody; name users or accounts, such as [root] for maintenance."
    yield from _unknown(
        "user", reservation.get("users") or (), {"root", *known["users"]}, known["users"]
    )
    yield from _unknown(
        "account", reservation.get("accounts") or (), known["accounts"], known["accounts"]
    )
    partition = reservation.get("partition")
    if partition and partition not in known["partitions"]:
        yield f"is in the partition {partition}, which slurm_partitions does not have."
    start, end, duration = (str(reservation.get(key) or "") for key in ("start", "end", "duration"))
    if start not in ("", NOW) and not MOMENT.fullmatch(start):
        yield f'starts at {start!r}; write now, or "2026-12-01T08:00" in quotes.'
    if bool(end) == bool(duration):
        yield "needs either a duration or an end; set one of them."
    elif end and not MOMENT.fullmatch(end):
        yield f'ends at {end!r}; write "2026-12-01T18:00" in quotes.'
    elif end and MOMENT.fullmatch(start) and end <= start:
        yield f"ends at {end}, before it starts; correct one of them."
    elif duration and not DURATION.fullmatch(duration):
        yield f'lasts {duration!r}; write minutes, "8:00:00", "2-00:00:00" or UNLIMITED.'


def _unknown(
    what: str, named: Sequence[str], may: Collection[str], declared: Collection[str]
) -> Iterator[str]:
    if declared and (unknown := [name for name in named if name not in may]):
        yield (
            f"is for the {what} {', '.join(unknown)}, which slurm_{what}s does not declare; "
            "add it there, or correct the name."
        )
