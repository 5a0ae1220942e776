#!/usr/bin/python
"""Makes homes that are not there, and sets the quota of their users, on the host that has them.

A home that is there is its user's: neither its owner, nor its mode, nor anything in it is touched.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.cluster_users_module import Failed, answer, program, reason
from ansible.module_utils.refused import Refused

DOCUMENTATION = r"""
module: cluster_users_homes
short_description: Make homes that are not there, and set the quota of their users
description:
  - Users and groups are numbers here, so the accounts may be made before or after.
  - Is refused, with a sentence for each reason and nothing changed, where a home is another's,
    where its folder is not there, and where a quota is declared and the filesystem keeps none. The
    last two are warnings in check mode, since what mounts a filesystem may come later in a run.
options:
  users:
    description: >-
      The users, each with name, uid, gid, home, state and quota (soft and hard KiB, soft and hard
      files).
    type: json
    required: true
  mode:
    description: Mode of a new home.
    type: str
    default: "0700"
  skeleton:
    description: Folder whose files a new home begins with.
    type: path
    default: /etc/skel
author: The Plumbline authors
"""

RETURN = r"""
refused:
  description: Why nothing can be done, a sentence each without its end; empty on success.
  type: list
  elements: str
  returned: always
kept:
  description: Homes of users who are absent, which stay.
  type: list
  elements: str
  returned: success
"""

MOUNTS = Path("/proc/self/mountinfo")
# What a filesystem's options say when it holds users to their limits.
ENFORCES = ("usrquota", "quota", "uquota")
LIMITS = ("BlockSoftLimit", "BlockHardLimit", "FileSoftLimit", "FileHardLimit")

Limits = tuple[int, ...]  # soft and hard KiB, soft and hard files; 0 is none
Ask = Callable[[Sequence[str], str], str]


@dataclass(frozen=True)
class User:
    name: str
    uid: int
    gid: int
    home: Path
    state: str = "present"
    limits: Limits = ()  # empty: none is declared, and what there is stays


def user_of(entry: Mapping[str, Any]) -> User:
    return User(
        name=entry["name"],
        uid=entry["uid"],
        gid=entry["gid"],
        home=Path(entry["home"]),
        state=entry["state"],
        limits=tuple(entry["quota"]),
    )


# --- homes ---------------------------------------------------------------------------------------


def missing(users: Iterable[User]) -> list[User]:
    """Those who may log in and have no home yet."""
    return [user for user in users if user.state == "present" and not os.path.lexists(user.home)]


def home_refusals(users: Iterable[User]) -> Iterator[str]:
    """Homes that are there and not their user's."""
    for user in users:
        if user.state != "present" or not os.path.lexists(user.home):
            continue
        if not user.home.is_dir():
            yield f"{user.home}, the home of {user.name}, is no folder here"
        elif (owner := user.home.stat().st_uid) != user.uid:
            yield (
                f"{user.home} is uid {owner}'s here and should be the home of {user.name} "
                f"({user.uid}); give it to {user.name} with chown, or name another home"
            )


def folder_refusals(users: Iterable[User]) -> list[str]:
    """Folders of homes that are not there: made here, they might lie below a later mount."""
    named: dict[Path, list[str]] = {}
    for user in missing(users):
        if not user.home.parent.is_dir():
            named.setdefault(user.home.parent, []).append(user.name)
    return [
        f"{folder} is not there, where the home of {names[0]}"
        f"{f' and {len(names) - 1} more' if names[1:] else ''} belongs; mount or make it first"
        for folder, names in named.items()
    ]


def make_home(user: User, mode: int, skeleton: Path) -> None:
    """A home with the skeleton's files, as a whole or not at all."""
    new = user.home.with_name(f".{user.home.name}.new")
    if new.exists():
        shutil.rmtree(new)  # of a run that was interrupted
    new.mkdir(mode=0o700)
    if skeleton.is_dir():
        shutil.copytree(skeleton, new, symlinks=True, dirs_exist_ok=True)
    for folder, folders, files in os.walk(new):
        for name in (*folders, *files):
            os.lchown(os.path.join(folder, name), user.uid, user.gid)
    new.chmod(mode)
    os.chown(new, user.uid, user.gid)
    new.rename(user.home)


# --- quota ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mount:
    """Where a filesystem is mounted, what it is, and its options."""

    point: str
    kind: str
    options: frozenset[str]

    @property
    def enforces(self) -> bool:
        return any(
            option in ENFORCES or option.startswith("usrjquota=") for option in self.options
        ) and not {"noquota", "uqnoenforce"} & set(self.options)


def mounts_of(text: str) -> list[Mount]:
    """The mounts in the text of mountinfo (proc(5)), the last ones on top."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        head, tail = before.split(), after.split()
        if len(head) >= 6 and len(tail) >= 3:
            point = head[4].encode().decode("unicode_escape")
            options = frozenset([*head[5].split(","), *tail[2].split(",")])
            mounts.append(Mount(point, tail[0], options))
    return mounts


def mount_of(path: Path, mounts: Sequence[Mount]) -> Mount:
    """The filesystem that a path is, or would be, on."""
    real = Path(os.path.realpath(path))
    above = {str(folder) for folder in (real, *real.parents)}
    *_, last = sorted(
        (mount for mount in mounts if mount.point in above), key=lambda mount: len(mount.point)
    )
    return last


def by_mount(users: Iterable[User], mounts: Sequence[Mount]) -> dict[Mount, list[User]]:
    """Users with declared limits by the filesystem of their homes."""
    users_of: dict[Mount, list[User]] = {}
    for user in users:
        if user.limits and user.state != "absent":
            users_of.setdefault(mount_of(user.home.parent, mounts), []).append(user)
    return users_of


def quota_refusals(mounts: Iterable[Mount]) -> list[str]:
    return [
        f"a quota is declared, and {mount.point}, where homes are, is {mount.kind} that holds no "
        "user to one; mount it with usrquota, or leave cluster_users_quota empty and set limits "
        "where the storage is"
        for mount in mounts
        if not mount.enforces
    ]


def limits_of(report: str) -> dict[int, Limits]:
    """By uid the limits in repquota's CSV, with users as numbers."""
    limits = {}
    lines = report.splitlines()
    while lines and not lines[0].startswith("User,"):
        del lines[0]
    for row in csv.DictReader(lines):
        number = (row.get("User") or "").lstrip("#")
        if number.isdigit():
            limits[int(number)] = tuple(int(row[limit]) for limit in LIMITS)
    return limits


def due(users: Iterable[User], limits: Mapping[int, Limits]) -> list[User]:
    """Users whose limits are not as declared."""
    return [user for user in users if limits.get(user.uid, (0, 0, 0, 0)) != user.limits]


def ask(command: Sequence[str], stdin: str = "") -> str:
    done = program(command, stdin)
    if done.returncode:
        raise Failed(f"{' '.join(command)} failed: {reason(done)}")
    output: str = done.stdout
    return output


def found_limits(mount: Mount, ask: Ask) -> dict[int, Limits]:
    # Without --verbose it leaves out who has limits and no file.
    command = ("repquota", "--user", "--verbose", "--no-names", "--output=csv", mount.point)
    return limits_of(ask(command, ""))


def set_limits(mount: Mount, users: Iterable[User], ask: Ask) -> None:
    lines = "".join(f"{user.uid} {' '.join(map(str, user.limits))}\n" for user in users)
    ask(("setquota", "--user", "--batch", mount.point), lines)


# --- the module ----------------------------------------------------------------------------------


def run(
    users: Sequence[User],
    mode: int,
    skeleton: Path,
    check_mode: bool,
    mounts: Sequence[Mount],
    ask: Ask = ask,
) -> dict[str, Any]:
    """The module's result. Raises Refused, with nothing changed, and Failed."""
    filesystems = by_mount(users, mounts)
    refused = [*home_refusals(users)]
    later = [*folder_refusals(users), *quota_refusals(filesystems)]
    if refused or (later and not check_mode):
        raise Refused(*refused, *later)
    homes = missing(users)
    limited: list[tuple[User, Limits]] = []
    for mount, those in filesystems.items():
        # Before the first run there is neither the package nor, perhaps, the filesystem.
        if check_mode and (not mount.enforces or not shutil.which("repquota")):
            limited += [(user, ()) for user in those]
            continue
        current = found_limits(mount, ask)
        changed = due(those, current)
        limited += [(user, current.get(user.uid, ())) for user in changed]
        if changed and not check_mode:
            set_limits(mount, changed, ask)
    if not check_mode:
        for user in homes:
            make_home(user, mode, skeleton)
    return {
        "changed": bool(homes or limited),
        "refused": [],
        "warnings": [f"{sentence}." for sentence in later],
        "kept": [str(u.home) for u in users if u.state == "absent" and u.home.is_dir()],
        "diff": {
            "before": "".join(f"{user.name}: {limits_text(limits)}\n" for user, limits in limited),
            "after": "".join(f"{user.home}: uid {user.uid}, gid {user.gid}\n" for user in homes)
            + "".join(f"{user.name}: {limits_text(user.limits)}\n" for user, _ in limited),
        },
    }


def limits_text(limits: Limits) -> str:
    if not any(limits):
        return "no limit"
    blocks_soft, blocks_hard, files_soft, files_hard = limits
    return f"{blocks_soft} to {blocks_hard} KiB, {files_soft} to {files_hard} files"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "users": {"type": "json", "required": True},
            "mode": {"type": "str", "default": "0700"},
            "skeleton": {"type": "path", "default": "/etc/skel"},
        },
        supports_check_mode=True,
        no_log=True,  # in the host's log, where a thousand users would be half a megabyte each time
    )
    options = module.params
    answer(
        module,
        lambda: run(
            [user_of(entry) for entry in json.loads(options["users"])],
            int(options["mode"], 8),
            Path(options["skeleton"]),
            module.check_mode,
            mounts_of(MOUNTS.read_text(encoding="utf-8")),
        ),
    )


if __name__ == "__main__":
    main()
