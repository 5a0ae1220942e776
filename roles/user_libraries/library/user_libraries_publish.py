#!/usr/bin/python
"""Opens libraries that are what other hosts have, and brings their modulefiles."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.download import disk_problem
from ansible.module_utils.published import bring_pages
from ansible.module_utils.user_libraries_entry import (
    LISTING,
    MODULEFILES,
    OPEN,
    Built,
    Places,
    survey,
)
from ansible.module_utils.user_libraries_modules import modulefile
from ansible.module_utils.whole_file import surplus

DOCUMENTATION = r"""
module: user_libraries_publish
short_description: Open libraries that are the same as on other hosts
description:
  - Opens a version that was built, and writes its modulefile, where its content is as expected.
  - One that differs stays closed, and is told. One that is open stays open, for jobs use it.
options:
  path:
    description: The folder of all libraries.
    type: path
    required: true
  wanted:
    description: The declared versions, as NAME/VERSION.
    type: list
    elements: str
    required: true
  expected:
    description: >-
      For each NAME/VERSION and machine the C(content), the C(python) that it was built with, and
      the C(host) that has it.
    type: dict
    required: true
author: The Plumbline authors
"""

RETURN = r"""
published:
  description: The declared versions that users have now, as NAME/VERSION.
  type: list
  elements: str
  returned: success
problems:
  description: What is not published, or differs from other hosts, a sentence each.
  type: list
  elements: str
  returned: success
"""

Expected = Mapping[str, Mapping[str, Mapping[str, str]]]


def problem(built: Built, expected: Expected, places: Places) -> str:
    """Why a version is not what others have; "" if it is."""
    other = expected.get(str(built.place), {}).get(platform.machine())
    if not other:
        return (
            f"{built.title} is not published: the host that others are compared with did not "
            "answer; run again with it, or set `content` of the entry"
        )
    if other["content"] == built.content:
        return ""
    folder = places.folder(built.place)
    state = "is published" if places.is_open(built.place) else "is not published"
    why = f"compare {folder / LISTING} of both, then remove {folder} here and run again"
    if other.get("python", built.python) != built.python:
        why = (
            f"it is Python {built.python} here and {other['python']} there: set `python` to one "
            "that all hosts have"
        )
    return (
        f"{built.title} has the content {built.content[:12]}, and {other['host']} has "
        f"{other['content'][:12]}, so it {state}: {why}"
    )


def run(
    places: Places, wanted: Iterable[str], expected: Expected, check_mode: bool
) -> dict[str, Any]:
    """The module's result. Raises OSError of the disk."""
    there = survey(places.root)
    problems: list[str] = []
    opened: list[PurePosixPath] = []
    for place in map(PurePosixPath, wanted):
        if place not in there:
            continue  # who built it has said why
        sentence = problem(there[place], expected, places)
        if sentence:
            problems.append(sentence)
        elif not places.is_open(place):
            opened.append(place)
    for place in opened:
        if not check_mode:
            places.folder(place).chmod(OPEN)
    published = {place: built for place, built in there.items() if places.is_open(place)}
    published |= {place: there[place] for place in opened}
    files = {
        f"{MODULEFILES}/{place}.lua": modulefile(places.root, built)
        for place, built in published.items()
    }
    changed_files: list[str] = []
    if places.root.is_dir():
        stale = surplus(places.root, files, [f"{MODULEFILES}/*/*.lua"])
        changed_files = bring_pages(places.root, files, stale, check_mode)
    lines = [f"{place} is published" for place in opened] + changed_files
    return {
        "changed": bool(lines),
        "published": sorted(str(place) for place in published if str(place) in set(wanted)),
        "problems": problems,
        "diff": {"prepared": "".join(f"{line}\n" for line in lines)},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "wanted": {"type": "list", "elements": "str", "required": True},
            "expected": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    options = module.params
    places = Places(Path(options["path"]))
    try:
        result = run(places, options["wanted"], options["expected"], module.check_mode)
    except OSError as error:
        module.fail_json(
            msg=f"user_libraries: {error.filename or places.root}: {disk_problem(error)}."
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
