#!/usr/bin/python
"""Reads every byte of the published libraries, and says what is not as it was built."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.user_libraries_entry import Places, survey
from ansible.module_utils.user_libraries_modules import modulefile
from ansible.module_utils.user_libraries_tree import differences
from ansible.module_utils.whole_file import OWN_FILE, differs

DOCUMENTATION = r"""
module: user_libraries_verify
short_description: Compare published libraries with what was built
description:
  - Changes nothing. Reads every file of the declared versions.
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
author: The Plumbline authors
"""

RETURN = r"""
found:
  description: For each declared version C(as built), or what is otherwise.
  type: dict
  returned: success
"""

AS_BUILT = "as built"
_NAMED = 3  # differences in a sentence


def state(place: PurePosixPath, places: Places) -> str:
    built = survey(places.root).get(place)
    if built is None:
        return "missing"
    if not places.is_open(place):
        return "not published"
    folder = places.folder(place)
    try:
        found = list(differences(folder, built))
    except FileNotFoundError as error:
        return f"{error.filename} is gone"
    if differs(places.modulefile(place), modulefile(places.root, built), OWN_FILE):
        found.append(f"{places.modulefile(place)} is not the module's file")
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more if found else AS_BUILT


def run(places: Places, wanted: Iterable[str]) -> dict[str, Any]:
    return {
        "changed": False,
        "found": {place: state(PurePosixPath(place), places) for place in wanted},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "wanted": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    options = module.params
    try:
        result = run(Places(Path(options["path"])), options["wanted"])
    except OSError as error:
        module.fail_json(msg=f"user_libraries: {error.filename}: {error.strerror}.")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
