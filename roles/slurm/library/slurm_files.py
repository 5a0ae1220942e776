#!/usr/bin/python
"""Puts Slurm's files in place, all of a host in one go.

A compute node that fetches its configuration has none of them, a login node has some, and prolog
scripts come and go with the components: what is not given is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: slurm_files
short_description: Put Slurm's files in place
options:
  folder:
    description: Where they are.
    type: path
    default: /etc/slurm
  files:
    description: Name to content; an empty content means that there is no such file.
    type: dict
    required: true
  scripts:
    description: >-
      Name of a folder in it to scripts, name to content. Scripts that this module once put there
      and that are not given any more are removed, those of others stay.
    type: dict
    default: {}
author: The Plumbline authors
"""

RETURN = r"""
differs:
  description: The paths that were not as they should be.
  type: list
  elements: str
  returned: always
"""

MARK = "# Managed by Ansible; changes made here are lost.\n"


def marked(script: str) -> str:
    """A script with our mark in its second line, by which it is known to be ours."""
    first, _, rest = script.partition("\n")
    return f"{first}\n{MARK}{rest}"


def is_ours(path: Path) -> bool:
    return MARK.encode() in path.read_bytes()[:4096]


def wanted(
    folder: Path, files: Mapping[str, str], scripts: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[Path, str, int]]:
    """(path, content, mode) of every file; an empty content is a file that should not be."""
    for name, content in files.items():
        yield folder / name, content, 0o644
    for sub, given in scripts.items():
        for name, content in given.items():
            yield folder / sub / name, marked(content), 0o755
        for path in sorted((folder / sub).glob("*")):
            if path.name not in given and path.is_file() and is_ours(path):
                yield path, "", 0


def differs(path: Path, content: str, mode: int) -> bool:
    if not content:
        return path.is_symlink() or path.exists()
    if path.is_symlink() or not path.is_file():
        return True
    state = path.stat()
    return (
        state.st_mode & 0o7777 != mode
        or (state.st_uid, state.st_gid) != (os.geteuid(), os.getegid())
        or path.read_bytes() != content.encode()
    )


def put(path: Path, content: str, mode: int) -> None:
    if not content:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(mode=0o755, exist_ok=True)
    new = path.with_name(f".{path.name}.new")  # a glob such as prolog.d/* leaves it out
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
    new.replace(path)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "default": "/etc/slurm"},
            "files": {"type": "dict", "required": True},
            "scripts": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    folder = Path(module.params["folder"])
    changed: list[str] = []
    diff: list[dict[str, str]] = []
    try:
        for path, content, mode in wanted(folder, module.params["files"], module.params["scripts"]):
            if not differs(path, content, mode):
                continue
            changed.append(str(path))
            header = {"before_header": str(path), "after_header": str(path)}
            diff.append({"before": read(path), "after": content, **header})
            if not module.check_mode:
                put(path, content, mode)
    except OSError as error:
        module.fail_json(msg=f"slurm_files: {error}")
    module.exit_json(changed=bool(changed), differs=changed, diff=diff)


if __name__ == "__main__":
    main()
