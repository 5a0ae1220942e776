#!/usr/bin/python
"""Makes the folders of a daemon, and gives each to whom it belongs.

A folder that a service's user may write to can have a link in it at any time, and root that follows
it gives away, or writes to, whatever the link names. So links count where root alone could make
them, and nowhere else; owner and mode are set on the very folder that was looked at.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.refused import Refused

DOCUMENTATION = r"""
module: folders
short_description: Make folders, and follow no link that others than root could have made
description:
  - Makes each folder that is missing, and sets its owner, group and mode. All in one call, in their
    order, so that a folder of root's comes before what is below it.
  - Fails with one sentence for a link in a folder that others than root may write to, and for what
    is no folder. A link that root alone could make is followed.
options:
  folders:
    description: >-
      The folders, each with C(path), and C(owner), C(group) and C(mode) where they are not C(root),
      that of the owner's name, and C(0755). A number is an account that the host need not know.
      With C(keep) it is another role's folder: one that is there stays whose it is.
    type: list
    elements: dict
    required: true
author: The Plumbline authors
"""

ROOT = {0, os.geteuid()}  # root on a node; whoever runs the tests
MOST_LINKS = 40  # as the kernel's own limit


@dataclass(frozen=True)
class Wanted:
    """A folder, and whose it is to be."""

    path: Path
    user: int
    group: int
    mode: int
    keep: bool = False

    def differs(self, status: os.stat_result) -> bool:
        if self.keep:
            return False
        there = (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))
        return there != (self.user, self.group, self.mode)


def is_roots_alone(status: os.stat_result) -> bool:
    """Whether nobody but root can put a name into a folder, or take one away."""
    others = stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid in ROOT and not others


@contextmanager
def opened(path: Path, make: bool) -> Iterator[int | None]:
    """A descriptor of the folder itself, made with those above it; None of one that is missing.

    Raises Refused for a link that somebody else may have made.
    """
    pending = list(reversed(path.parts[1:]))
    come = [os.open("/", os.O_PATH | os.O_DIRECTORY)]
    way = [Path("/")]
    links = 0
    try:
        while pending:
            name = pending.pop()
            here = come[-1]
            if name == "..":  # of a link
                if len(come) > 1:
                    os.close(come.pop())
                    way.pop()
                continue
            at = way[-1] / name
            try:
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:
                if not make:
                    yield None
                    return
                # On what hosts share, another may have made it in this moment.
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=here)
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                links += 1
                target = os.readlink(name, dir_fd=here)
                # Its owner too: the folder may have been somebody else's when it was made.
                roots = status.st_uid in ROOT and is_roots_alone(os.fstat(here))
                if not roots or links > MOST_LINKS:
                    raise Refused(
                        f"{path} is not made: {at} is a link to {target}, and who made it may have "
                        f"been another than root; look at who did, remove it, and run again"
                    )
                if target.startswith("/"):
                    for descriptor in come[1:]:
                        os.close(descriptor)
                    del come[1:], way[1:]
                pending += [part for part in reversed(target.split("/")) if part not in ("", ".")]
                continue
            if not stat.S_ISDIR(status.st_mode):
                raise Refused(f"{path} is not made: {at} is there and is no folder; move it away")
            # A link that came there since is not opened.
            come.append(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=here))
            way.append(at)
        yield come[-1]
    finally:
        for descriptor in come:
            os.close(descriptor)


def differing(wanted: Wanted) -> str | None:
    """What is there in place of the folder, in words; None of one that is as wanted."""
    with opened(wanted.path, make=False) as folder:
        if folder is None:
            return ""
        status = os.fstat(folder)
        return _described(status) if wanted.differs(status) else None


def put(wanted: Wanted) -> None:
    with opened(wanted.path, make=True) as folder:
        # The folder of the descriptor, wherever its name leads to by now.
        itself = f"/proc/self/fd/{folder}"
        if folder is not None and wanted.differs(os.fstat(folder)):
            os.chown(itself, wanted.user, wanted.group)
            os.chmod(itself, wanted.mode)  # last, for a change of owner takes bits away


def run(folders: Sequence[Wanted], check_mode: bool) -> dict[str, Any]:
    """The module's result. Raises Refused, and OSError."""
    diff = []
    for wanted in folders:
        before = differing(wanted)
        if before is None:
            continue
        if not check_mode:
            put(wanted)
        after = f"{wanted.user}:{wanted.group} {wanted.mode:04o}\n"
        header = {"before_header": str(wanted.path), "after_header": str(wanted.path)}
        diff.append({"before": before, "after": after, **header})
    return {"changed": bool(diff), "diff": diff}


def _described(status: os.stat_result) -> str:
    return f"{status.st_uid}:{status.st_gid} {stat.S_IMODE(status.st_mode):04o}\n"


def wanted_of(entry: Mapping[str, Any]) -> Wanted:
    """Raises Refused for a user or a group that the host does not have."""
    path = Path(str(entry["path"]))
    if not path.is_absolute() or ".." in path.parts:
        raise Refused(f"{path} is no absolute path of a folder")
    owner = str(entry.get("owner") or "root")
    group = str(entry.get("group") or owner)
    try:
        user_number = int(owner) if owner.isdigit() else pwd.getpwnam(owner).pw_uid
        group_number = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise Refused(f"{path} cannot be {owner}:{group}'s: the host has no such account") from None
    mode = int(str(entry.get("mode") or "0755"), 8)
    return Wanted(path, user_number, group_number, mode, bool(entry.get("keep")))


def main() -> None:
    module = AnsibleModule(
        argument_spec={"folders": {"type": "list", "elements": "dict", "required": True}},
        supports_check_mode=True,
    )
    wanted = []
    unknown = False
    try:
        for entry in module.params["folders"]:
            if module.check_mode:
                # What an earlier task only would have installed brings its accounts.
                with suppress(Refused):
                    wanted.append(wanted_of(entry))
                    continue
                unknown = True
            else:
                wanted.append(wanted_of(entry))
        result = run(wanted, module.check_mode)
    except Refused as problem:
        module.fail_json(msg=f"{problem}.")
    except OSError as error:
        module.fail_json(msg=f"folders: {error.filename}: {error.strerror}.")
    module.exit_json(**{**result, "changed": result["changed"] or unknown})


if __name__ == "__main__":
    main()
