#!/usr/bin/python
"""Brings one file of an upstream release to a node, whole and as it was pinned, or not at all.

What lies there already and has the right hash is neither asked for nor touched. A download goes to
a file beside its destination and takes its name only once every byte has been counted and hashed,
so that whatever goes wrong, what was there before still is.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.download import NoFile, download, other_hash, replacing

DOCUMENTATION = r"""
module: release_file
short_description: Bring one file of an upstream release to a node
description:
  - Downloads when the destination is missing or has another SHA-256, and replaces it at once.
  - Proxies are those of the environment; certificates are held against the node's own authorities.
options:
  url:
    description: Where it is; C(https:), C(http:) or C(file:).
    type: str
    required: true
  sha256:
    description: What its SHA-256 must be, 64 hexadecimal digits.
    type: str
    required: true
  dest:
    description: Path of the file; its folder must be there.
    type: path
    required: true
  mode:
    description: Its permissions, as four octal digits.
    type: str
    default: "0644"
  timeout:
    description: Seconds of silence after which the download is given up.
    type: int
    default: 60
  variable:
    description: The variable with which a site names its mirror; errors say it.
    type: str
    default: ""
author: The Plumbline authors
"""

_CHUNK = 2**20  # bytes


def digest(path: Path) -> str:
    """SHA-256 of a file, or "" where there is none."""
    sha256 = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                sha256.update(chunk)
    except FileNotFoundError:
        return ""
    return sha256.hexdigest()


def fetch(url: str, sha256: str, dest: Path, mode: int, timeout: float, variable: str = "") -> None:
    """Replaces `dest` by what is at `url`. Raises NoFile, and then nothing has changed."""
    with replacing(dest, mode) as file:
        if problem := other_hash(download(url, file, timeout, variable), sha256):
            raise NoFile(
                f"{url} {problem}; it is another file, or the SHA-256 belongs to another version"
            )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "sha256": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "mode": {"type": "str", "default": "0644"},
            "timeout": {"type": "int", "default": 60},
            "variable": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    options = module.params
    dest, mode = Path(options["dest"]), int(options["mode"], 8)
    if not re.fullmatch(r"[0-9a-fA-F]{64}", options["sha256"]):
        module.fail_json(
            msg=f"the SHA-256 for {options['url']} is {options['sha256']!r}; "
            "give its 64 hex digits."
        )
    there = digest(dest) == options["sha256"].lower()
    right = there and dest.stat().st_mode & 0o7777 == mode
    if not right and not module.check_mode:
        try:
            if there:
                dest.chmod(mode)
            else:
                fetch(
                    options["url"],
                    options["sha256"],
                    dest,
                    mode,
                    options["timeout"],
                    options["variable"],
                )
        except NoFile as problem:
            module.fail_json(msg=f"{problem}.")
    module.exit_json(changed=not right, dest=str(dest))


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
