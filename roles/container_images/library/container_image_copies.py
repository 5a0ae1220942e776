#!/usr/bin/python
"""Copies published container images to this host's own disk, each whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.container_images_entry import Image, image_of, survey
from ansible.module_utils.download import disk_problem
from ansible.module_utils.published import amount
from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import OWN_FILE, make_folder, write

DOCUMENTATION = r"""
module: container_image_copies
short_description: Copy published container images to this host's own disk
description:
  - Copies what is declared with C(prefetch), and removes other copies of its own.
options:
  root:
    description: The folder of all images.
    type: path
    required: true
  folder:
    description: The folder of the copies.
    type: path
    required: true
  published:
    description: The images; the role's argument specs describe an entry.
    type: list
    elements: dict
    required: true
author: The Plumbline authors
"""


def run(
    entries: Sequence[Mapping[str, Any]], root: Path, folder: Path, check_mode: bool
) -> dict[str, Any]:
    """The module's result. Raises Refused, and OSError of the disk."""
    published = survey(root)
    wanted: dict[Path, Image] = {}
    for entry in entries:
        if entry.get("prefetch") and entry.get("state") != "absent":
            image = image_of(entry)
            # In check mode it may be imported by the run that it stands for.
            if image.file(root) not in published and not check_mode:
                raise Refused(
                    f"{image.file(root)} is not there; import it first (playbooks/images.yml "
                    "without --limit), and see that the folder is mounted here"
                )
            wanted[image.file(folder)] = published.get(image.file(root), image)
    there = survey(folder)
    surplus = [file for file in there if file not in wanted]
    lacking = [
        (file, image)
        for file, image in wanted.items()
        if file not in there or there[file].digest != image.digest
    ]
    if not check_mode:
        for file in surplus:
            file.unlink()
            there[file].manifest(folder).unlink()
        check_room(sum(image.size for _, image in lacking), folder)
        for file, image in lacking:
            copy(image.file(root), file)
            write(image.manifest(folder), image.text(), OWN_FILE)
    lines = [f"{file} is copied" for file, _ in lacking] + [
        f"{file} is removed" for file in surplus
    ]
    return {"changed": bool(lines), "diff": {"prepared": "".join(f"{line}\n" for line in lines)}}


def check_room(needed: int, folder: Path) -> None:
    disk = os.statvfs(next(path for path in (folder, *folder.parents) if path.exists()))
    free = disk.f_bavail * disk.f_frsize
    if needed > free:
        raise Refused(
            f"{folder} has {amount(free)} free, and {amount(needed)} are to be copied; make room, "
            "or prefetch fewer images"
        )


def copy(source: Path, dest: Path) -> None:
    make_folder(dest.parent)
    part = dest.with_name(f".{dest.name}.part")
    try:
        shutil.copyfile(source, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        OWN_FILE.grant(part)
        part.replace(dest)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "folder": {"type": "path", "required": True},
            "published": {"type": "list", "elements": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    options = module.params
    root, folder = Path(options["root"]), Path(options["folder"])
    try:
        result = run(options["published"], root, folder, module.check_mode)
    except Refused as problem:
        module.fail_json(msg=f"container_images: {problem}.")
    except OSError as error:
        module.fail_json(msg=f"container_images: {error.filename}: {disk_problem(error)}.")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
