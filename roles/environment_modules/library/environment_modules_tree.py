#!/usr/bin/python
"""Writes modulefiles into a tree that others write to as well.

What is ours says so in a line with its own path, so that a copy under another name is not. Before
anything changes, the time that Lmod holds its cache against is set to now: a cache that is older is
not used, whatever becomes of the run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import OWN_FILE, differs, make_folder, remove, write

DOCUMENTATION = r"""
module: environment_modules_tree
short_description: Write modulefiles beside those of others
description:
  - Removes files of its own that are not in O(files), and folders that are empty then.
  - Fails, before anything changes, where somebody else's file has the place of one of O(files).
options:
  folder:
    description: The tree.
    type: path
    required: true
  files:
    description: Text of each file, by its path below the tree.
    type: dict
    required: true
  mark:
    description: Beginning of the line that tells a file as ours; its path follows.
    type: str
    required: true
  cache:
    description: Folder with Lmod's cache of the tree, and with the file V(timestamp).
    type: path
    required: true
author: The Plumbline authors
"""

RETURN = r"""
changed_files:
  description: Paths below the tree that were written or removed.
  type: list
  elements: str
  returned: success
cache:
  description: What Lmod's cache is now, one of C(valid), C(old) and C(missing).
  type: str
  returned: success
"""

# The default of a name is whatever comes first of these.
DEFAULTS = ("default", ".modulerc.lua", ".modulerc", ".version")
HEAD = 20  # lines in which the mark must be


@dataclass(frozen=True)
class Tree:
    folder: Path
    mark: str

    def is_ours(self, name: str) -> bool:
        path = self.folder / name
        if path.is_symlink() or not path.is_file():
            return False
        with open(path, encoding="utf-8", errors="replace") as file:
            head = [line.rstrip("\n") for _, line in zip(range(HEAD), file, strict=False)]
        return f"{self.mark}{name}" in head

    def ours(self) -> list[str]:
        """Paths of our files, below the tree."""
        paths = (
            path.relative_to(self.folder).as_posix()
            for pattern in ("*/*.lua", "*/.*.lua")
            for path in self.folder.glob(pattern)
        )
        return sorted({name for name in paths if self.is_ours(name)})

    def refuse_strangers(self, names: Iterable[str]) -> None:
        for name in names:
            path = self.folder / name
            if os.path.lexists(path) and not self.is_ours(name):
                raise Refused(
                    f"environment_modules: {path} is somebody else's; move it away, or take "
                    f"{name.removesuffix('.lua')} out of environment_modules_modulefiles."
                )
            if path.name in DEFAULTS:
                before = DEFAULTS[: DEFAULTS.index(path.name)]
                for other in (path.with_name(default) for default in before):
                    if os.path.lexists(other):
                        raise Refused(
                            f"environment_modules: {other} of somebody else chooses the default; "
                            f"remove it, or take the default of {path.parent.name} out of "
                            "environment_modules_modulefiles."
                        )


def cache_state(cache: Path) -> str:
    """As Lmod judges it: whole seconds, and older than the timestamp is too old."""
    try:
        spider, wanted = (cache / name for name in ("spiderT.lua", "timestamp"))
        status = spider.stat()
        return "valid" if status.st_size and int(status.st_mtime) >= since(wanted) else "old"
    except FileNotFoundError:
        return "missing"


def since(timestamp: Path) -> int:
    return int(timestamp.stat().st_mtime)


def apply(tree: Tree, files: Mapping[str, str], cache: Path, check_mode: bool) -> dict[str, Any]:
    """The module's result. Raises Refused, and then nothing has changed, and OSError."""
    tree.refuse_strangers(files)
    written = [name for name, text in files.items() if differs(tree.folder / name, text, OWN_FILE)]
    removed = [name for name in tree.ours() if name not in files]
    missing = not tree.folder.is_dir()
    changed = bool(written or removed or missing)
    if changed and not check_mode:
        make_folder(cache)
        (cache / "timestamp").touch()
        # One of the same second would count as newer.
        for cached in cache.glob("spiderT.*"):
            cached.unlink()
        make_folder(tree.folder)
        for name in written:
            write(tree.folder / name, files[name], OWN_FILE)
        for name in removed:
            remove(tree.folder / name, tree.folder)
    return {
        "changed": changed,
        "changed_files": sorted([*written, *removed]),
        "cache": cache_state(cache),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "mark": {"type": "str", "required": True},
            "cache": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    options = module.params
    files = {name: str(text) for name, text in options["files"].items()}
    tree = Tree(Path(options["folder"]), options["mark"])
    try:
        result = apply(tree, files, Path(options["cache"]), module.check_mode)
    except Refused as problem:
        module.fail_json(msg=str(problem))
    except OSError as error:
        module.fail_json(
            msg=f"environment_modules: {error.filename}: {error.strerror}; a tree on shared "
            "storage is written by one host that may (environment_modules_write)."
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
