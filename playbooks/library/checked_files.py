#!/usr/bin/python
"""Writes the files of a daemon's configuration, once its own checker has accepted all of them.

They are first written to a folder beside the daemon's own, where the checks run. What is refused
there is named in one sentence, and nothing that the daemon reads has changed: not one file of it.
So a name inside a file must be relative, or be that of something else.
"""

from __future__ import annotations

import fnmatch
import grp
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: checked_files
short_description: Write files of a daemon's configuration that its checker accepts
description:
  - Writes all of the files or none. The order in which they take their names is that of the text.
  - In check mode the checks run, and nothing is written.
options:
  folder:
    description: Where the files belong; an absolute path of a folder that exists.
    type: path
    required: true
  files:
    description: Text of each file, by its path below O(folder).
    type: dict
    required: true
  owned:
    description: Patterns of paths below O(folder); what matches and is not in O(files) goes.
    type: list
    elements: str
    default: []
  checks:
    description: >-
      Commands, each a list of words, that run in a copy of O(files) and must end with 0. Their
      output is the reason of a refusal.
    type: list
    elements: list
    default: []
  owner:
    description: Owner of the files and of folders below O(folder).
    type: str
    default: root
  group:
    description: Group of the files and of folders below O(folder), who may read them.
    type: str
    default: root
  mode:
    description: Mode of the files, for a daemon that takes no other.
    type: str
    default: "0640"
author: The Plumbline authors
"""

RETURN = r"""
changed_files:
  description: Paths below the folder that were written or removed.
  type: list
  elements: str
  returned: success
"""

MODE, FOLDER_MODE = 0o640, 0o750
PATIENCE_S = 120  # for one check
LONGEST = 400  # characters of a reason


class Refused(Exception):
    """One sentence without its end: what is wrong with the files."""


@dataclass(frozen=True)
class Owner:
    """Numbers of a user and of a group, and the mode of their files."""

    user: int
    group: int
    mode: int = MODE


def place(name: str) -> PurePosixPath:
    """A path below the folder. Raises Refused for one that leads out of it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise Refused(f"{name!r} is no path of a file below the folder")
    return path


def write(path: Path, text: str, owner: Owner) -> None:
    """Replaces a file by a whole one; new folders on the way to it are the owner's."""
    for folder in reversed([f for f in path.parents if not f.exists()]):
        folder.mkdir(mode=FOLDER_MODE)
        os.chown(folder, owner.user, owner.group)
        folder.chmod(FOLDER_MODE)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    os.chown(new, owner.user, owner.group)
    new.chmod(owner.mode)
    new.replace(path)


def differs(path: Path, text: str, owner: Owner) -> bool:
    try:
        stat = path.stat()
        found = (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid)
        same = found == (owner.mode, owner.user, owner.group)
        return not same or path.read_text(encoding="utf-8") != text
    except (FileNotFoundError, UnicodeDecodeError):
        return True


def surplus(folder: Path, names: Iterable[str], owned: Iterable[str]) -> list[str]:
    """Files below the folder that are of a pattern of ours and none of ours."""
    kept = {str(place(name)) for name in names}
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    patterns = list(owned)
    return sorted(
        name
        for name in found
        if name not in kept and any(fnmatch.fnmatchcase(name, one) for one in patterns)
    )


def reason(said: str, folder: str) -> str:
    """What a checker said, as part of a sentence: without what is fine, and the copy's own path."""
    lines = [" ".join(line.replace(f"{folder}/", "").split()) for line in said.splitlines()]
    lines = [line.removeprefix("FAILED:").strip() for line in lines if "SUCCESS" not in line]
    told = dict.fromkeys(line for line in lines if line and not line.startswith("Checking "))
    text = "; ".join(told).replace(":; ", ": ") or "it said nothing"
    return text if len(text) <= LONGEST else f"…{text[-LONGEST:]}"


def check(folder: Path, checks: Sequence[Sequence[str]]) -> None:
    """Runs the checks in a folder. Raises Refused with the reason of the first that fails."""
    for command in checks:
        words = [str(word) for word in command]
        try:
            done = subprocess.run(
                words,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=PATIENCE_S,
            )
        except OSError as error:
            raise Refused(f"{words[0]} cannot be started: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise Refused(f"{words[0]} gave no answer in {PATIENCE_S} s") from None
        if done.returncode:
            raise Refused(f"{Path(words[0]).name} refuses it: {reason(done.stdout, str(folder))}")


def run(
    folder: Path,
    files: Mapping[str, str],
    owned: Sequence[str],
    checks: Sequence[Sequence[str]],
    owner: Owner,
    check_mode: bool,
) -> dict[str, Any]:
    """The module's result. Raises Refused, and then nothing has changed, and OSError."""
    places = {place(name): text for name, text in files.items()}
    copy = Path(tempfile.mkdtemp(prefix=".checked-", dir=folder))
    try:
        for path, text in places.items():
            write(copy / path, text, owner)
        check(copy, checks)
    finally:
        shutil.rmtree(copy)
    written = [str(path) for path in places if differs(folder / path, places[path], owner)]
    removed = surplus(folder, files, owned)
    if not check_mode:
        for name in written:
            write(folder / name, places[PurePosixPath(name)], owner)
        for name in removed:
            (folder / name).unlink()
    return {"changed": bool(written or removed), "changed_files": sorted(written + removed)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            # A configuration may have secrets in it; what a checker says is shown all the same.
            "files": {"type": "dict", "required": True, "no_log": True},
            "owned": {"type": "list", "elements": "str", "default": []},
            "checks": {"type": "list", "elements": "list", "default": []},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str", "default": "root"},
            "mode": {"type": "str", "default": "0640"},
        },
        supports_check_mode=True,
    )
    given = module.params
    folder = given["folder"]
    try:
        owner = Owner(
            pwd.getpwnam(given["owner"]).pw_uid,
            grp.getgrnam(given["group"]).gr_gid,
            int(given["mode"], 8),
        )
        result = run(
            Path(folder),
            {name: str(text) for name, text in given["files"].items()},
            given["owned"],
            given["checks"],
            owner,
            module.check_mode,
        )
    except KeyError:
        module.fail_json(
            msg=f"checked_files: there is no user {given['owner']} or no group {given['group']}."
        )
    except Refused as problem:
        module.fail_json(msg=f"{folder} stays as it was: {problem}.")
    except OSError as error:
        module.fail_json(msg=f"checked_files: {error.filename}: {error.strerror}.")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
