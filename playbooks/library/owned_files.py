#!/usr/bin/python
"""Writes those files of a folder that are ours; what is ours and no longer wanted goes.

For texts without a secret: they are shown by --diff. Those with one, and those that a checker has
to accept, are for the module checked_files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.whole_file import (
    FILE,
    Access,
    NoPlace,
    differs,
    place,
    remove,
    surplus,
    write,
)

DOCUMENTATION = r"""
module: owned_files
short_description: Write files of root, and remove those that are no longer wanted
description:
  - Makes the folder of a file, and removes a folder below O(folder) with the last file in it.
options:
  folder:
    description: Where the files belong; an absolute path.
    type: path
    required: true
  files:
    description: >-
      Text of each file, by its path below O(folder). One whose text is empty must not be there.
    type: dict
    required: true
  owned:
    description: Patterns of paths below O(folder); what matches and is not in O(files) goes.
    type: list
    elements: str
    default: []
  managed:
    description: Patterns as those of O(owned), of which only files go that say they are Ansible's.
    type: list
    elements: str
    default: []
  mark:
    description: >-
      A line that each file gets below its first. Of what matches O(owned), only files with it go.
    type: str
    default: ""
  mode:
    description: Mode of the files.
    type: str
    default: "0644"
author: The Plumbline authors
"""

RETURN = r"""
changed_files:
  description: Paths below the folder that were written or removed.
  type: list
  elements: str
  returned: success
"""

HEAD = 4096  # bytes in which the mark must be
MANAGED = b"Managed by Ansible"  # of ansible_managed


@dataclass(frozen=True)
class Owned:
    """The files of a folder that are ours."""

    folder: Path
    patterns: Sequence[str] = ()
    mark: str = ""
    access: Access = FILE
    managed: Sequence[str] = ()

    def text(self, text: str) -> str:
        if not self.mark:
            return text
        first, _, rest = text.partition("\n")
        return f"{first}\n{self.mark}\n{rest}"

    def has_mark(self, path: Path) -> bool:
        if not self.mark:
            return True
        return path.is_file() and f"{self.mark}\n".encode() in path.read_bytes()[:HEAD]

    def surplus(self, keep: Iterable[str], unwanted: Iterable[str]) -> list[str]:
        sure = [name for name in unwanted if name not in self.managed]
        names = surplus(self.folder, keep, (*self.patterns, *sure))
        ours = [name for name in names if self.has_mark(self.folder / name)]
        return ours + [name for name in surplus(self.folder, keep, self.managed) if self.says(name)]

    def says(self, name: str) -> bool:
        """Whether a file says that it is Ansible's."""
        path = self.folder / name
        return path.is_file() and MANAGED in path.read_bytes()[:HEAD]


def run(owned: Owned, files: Mapping[str, str], check_mode: bool) -> dict[str, Any]:
    """The module's result. Raises NoPlace, and then nothing has changed, and OSError."""
    names = {name: str(place(name)) for name in files}
    texts = {names[name]: owned.text(text) for name, text in files.items() if text}
    unwanted = [names[name] for name in files if not files[name]]
    written = [
        name for name, text in texts.items() if differs(owned.folder / name, text, owned.access)
    ]
    removed = owned.surplus(texts, unwanted)
    diff = [_diff(owned.folder / name, texts.get(name, "")) for name in (*written, *removed)]
    if not check_mode:
        for name in written:
            write(owned.folder / name, texts[name], owned.access)
        for name in removed:
            remove(owned.folder / name, owned.folder)
    changed = sorted([*written, *removed])
    return {"changed": bool(changed), "changed_files": changed, "diff": diff}


def _diff(path: Path, after: str) -> dict[str, str]:
    before = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    header = {"before_header": str(path), "after_header": str(path)}
    return {"before": before, "after": after, **header}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "owned": {"type": "list", "elements": "str", "default": []},
            "managed": {"type": "list", "elements": "str", "default": []},
            "mark": {"type": "str", "default": ""},
            "mode": {"type": "str", "default": "0644"},
        },
        supports_check_mode=True,
    )
    options = module.params
    access = Access(int(options["mode"], 8), os.geteuid(), os.getegid())
    owned = Owned(
        Path(options["folder"]), options["owned"], options["mark"], access, options["managed"]
    )
    try:
        result = run(
            owned,
            {name: str(text) for name, text in options["files"].items()},
            module.check_mode,
        )
    except NoPlace as problem:
        module.fail_json(msg=f"{owned.folder} stays as it was: {problem}.")
    except OSError as error:
        module.fail_json(msg=f"owned_files: {error.filename}: {error.strerror}.")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
