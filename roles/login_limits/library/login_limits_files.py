#!/usr/bin/python
"""Writes whole files and the folders they lie in; what is owned and no longer wanted goes."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: login_limits_files
short_description: Write files of root that everybody may read
description:
  - Makes the folder of a file, and removes it with the last file in it.
options:
  files:
    description: Text of each file, by its absolute path.
    type: dict
    required: true
  owned:
    description: Patterns of paths; what matches and is not in O(files) goes.
    type: list
    elements: str
    default: []
author: The Plumbline authors
"""

RETURN = r"""
changed_files:
  description: Paths that were written or removed.
  type: list
  elements: str
  returned: always
"""

MODE = 0o644


def differs(path: Path, text: str) -> bool:
    try:
        status = path.stat()
        same = (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, 0, MODE)
        return not same or path.read_text(encoding="utf-8") != text
    except (FileNotFoundError, UnicodeDecodeError):
        return True


def write(path: Path, text: str) -> None:
    """Whole, or not at all: systemd may read it at any moment."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "w") as file:
        file.write(text)
    os.chown(new, 0, 0)
    new.chmod(MODE)
    new.replace(path)


def remove(path: Path) -> None:
    path.unlink()
    with suppress(OSError):  # somebody else's file is in it
        path.parent.rmdir()


def apply(files: Mapping[str, str], owned: Iterable[str], check_mode: bool) -> list[str]:
    """The paths that change."""
    written = [name for name, text in files.items() if differs(Path(name), text)]
    there = {name for pattern in owned for name in glob.glob(pattern)}
    removed = sorted(there - set(files))
    if not check_mode:
        for name in written:
            write(Path(name), files[name])
        for name in removed:
            remove(Path(name))
    return sorted([*written, *removed])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "dict", "required": True},
            "owned": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    files = {name: str(text) for name, text in module.params["files"].items()}
    changed = apply(files, module.params["owned"], module.check_mode)
    module.exit_json(changed=bool(changed), changed_files=changed)


if __name__ == "__main__":
    main()
