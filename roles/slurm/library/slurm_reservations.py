#!/usr/bin/python
"""Brings Slurm's reservations to what is declared; others stay as they are."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: slurm_reservations
short_description: Bring Slurm's reservations to what is declared
description:
  - Asks slurmctld for its reservations, and makes, changes or removes those that are named.
  - One that has begun, or is over, is not moved; one that is over is not made.
options:
  reservations:
    description: >-
      Each with a name; absent, for one that should not be; and settings of scontrol(1), such as
      Nodes, Users, StartTime and Duration.
    type: list
    elements: dict
    required: true
author: The Plumbline authors
"""

RETURN = r"""
commands:
  description: What scontrol was asked to do.
  type: list
  elements: list
  returned: always
"""

NOBODY = "(null)"
UNLIMITED = 365 * 24 * 60  # minutes; slurmctld makes a year of it
FORMAT = "%Y-%m-%dT%H:%M:%S"
# Slurm moves the start of one that repeats itself.
REPEATING = {"DAILY", "HOURLY", "WEEKDAY", "WEEKEND", "WEEKLY"}
# slurmctld uses them when it makes a reservation, and need not remember them.
WHEN_MADE = {"IGNORE_JOBS", "OVERLAP"}


def shown(answer: str) -> dict[str, dict[str, str]]:
    """Name -> settings, from what `scontrol --oneliner show reservation` prints."""
    reservations = {}
    for line in answer.splitlines():
        settings = dict(re.findall(r"(\w+)=(\S*)", line))
        if name := settings.pop("ReservationName", ""):
            reservations[name] = {
                key: "" if text == NOBODY else text for key, text in settings.items()
            }
    return reservations


def minutes(duration: str) -> int:
    """Of `UNLIMITED`, `90`, `8:00:00`, `2-00:00:00`."""
    if duration.upper() == "UNLIMITED":
        return UNLIMITED
    days, _, clock = duration.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if len(parts) == 1 and not days:
        return parts[0]
    hours, minutes_ = [*parts, 0][:2]
    return int(days or 0) * 24 * 60 + hours * 60 + minutes_


def words(text: str) -> set[str]:
    return {word for word in text.split(",") if word}


def differing(
    wanted: Mapping[str, str], current: Mapping[str, str], now: datetime.datetime
) -> dict[str, str]:
    """What of a reservation is to be changed; its nodes have one spelling if they are the same."""
    changes = {}
    flags = {flag.partition("=")[0] for flag in words(current.get("Flags", ""))}
    begun = current.get("StartTime", "") <= now.strftime(FORMAT)
    for name, value in wanted.items():
        was = current.get(name, "")
        if name == "Flags":
            missing = words(value.upper()) - flags - WHEN_MADE
            if missing:
                changes[name] = ",".join(f"+{flag}" for flag in sorted(missing))
        elif name == "StartTime":
            if value not in ("now", was) and not (begun or flags & REPEATING):
                changes[name] = value
        elif name == "Duration":
            if minutes(value) != minutes(was):
                changes[name] = value
        elif name == "EndTime":
            if value != was and not flags & REPEATING:
                changes[name] = value
        elif words(value) != words(was):
            changes[name] = value
    return changes


def over(wanted: Mapping[str, str], now: datetime.datetime) -> bool:
    """Whether the time of a reservation has passed, so that Slurm has forgotten it."""
    if words(wanted.get("Flags", "").upper()) & REPEATING:
        return False
    if end := wanted.get("EndTime"):
        return end <= now.strftime(FORMAT)
    start = wanted.get("StartTime", "now")
    if start == "now":
        return False
    lasts = datetime.timedelta(minutes=minutes(wanted["Duration"]))
    return datetime.datetime.strptime(start, FORMAT) + lasts <= now


def command(
    name: str,
    absent: bool,
    wanted: Mapping[str, str],
    current: Mapping[str, str] | None,
    now: datetime.datetime,
) -> list[str]:
    """The arguments of scontrol that bring one reservation there; none where it is."""
    if absent:
        return [] if current is None else ["delete", f"ReservationName={name}"]
    if current is None:
        if over(wanted, now):
            return []
        return ["create", f"ReservationName={name}", *(f"{k}={v}" for k, v in wanted.items())]
    changes = differing(wanted, current, now)
    if not changes:
        return []
    return ["update", f"ReservationName={name}", *(f"{k}={v}" for k, v in changes.items())]


def main() -> None:
    module = AnsibleModule(
        argument_spec={"reservations": {"type": "list", "elements": "dict", "required": True}},
        supports_check_mode=True,
    )

    def scontrol(*arguments: str) -> str:
        code, out, err = module.run_command(["scontrol", *arguments])
        if code:
            message = " ".join((err or out).split())
            module.fail_json(msg=f"scontrol {' '.join(arguments)}: {message}", commands=done)
        return str(out)

    done: list[list[str]] = []
    # `scontrol show hostnames` asks nobody: two host lists are compared by what they name.
    same = {"": ""}

    def nodes(text: str) -> str:
        if text not in same:
            same[text] = ",".join(sorted(scontrol("show", "hostnames", text).split()))
        return same[text]

    # slurmctld's clock is this host's.
    now = datetime.datetime.now()
    bare = module.check_mode and not module.get_bin_path("scontrol")
    current = {} if bare else shown(scontrol("--oneliner", "show", "reservation"))
    for reservation in module.params["reservations"]:
        wanted = {name: str(value) for name, value in reservation.get("settings", {}).items()}
        was = current.get(reservation["name"])
        if was is not None and nodes(was.get("Nodes", "")) == nodes(wanted.get("Nodes", "")):
            was = {**was, "Nodes": wanted.get("Nodes", "")}
        argv = command(reservation["name"], bool(reservation.get("absent")), wanted, was, now)
        if argv:
            if not module.check_mode:
                scontrol(*argv)
            done.append(argv)
    module.exit_json(changed=bool(done), commands=done)


if __name__ == "__main__":
    main()
