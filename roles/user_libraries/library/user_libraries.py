#!/usr/bin/python
"""Builds versions of libraries that are not there, closed to users, and removes what is to go.

What is built is opened by user_libraries_publish, once the hosts have been compared.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.download import disk_problem
from ansible.module_utils.published import check_root, held
from ansible.module_utils.refused import Refused
from ansible.module_utils.user_libraries_build import build, python_of
from ansible.module_utils.user_libraries_entry import (
    CLOSED,
    MANIFEST,
    Built,
    Library,
    Places,
    library_of,
    survey,
)
from ansible.module_utils.whole_file import OWN_FILE, Access, make_folder, write

DOCUMENTATION = r"""
module: user_libraries
short_description: Build locked Python environments that are not there
description:
  - Builds what is declared and not there with pip, from a lock file with hashes, closed to users.
  - Removes a version that is declared with C(state=absent), and none besides.
  - Is refused where a version is there with another lock, or a folder is somebody else's.
  - In check mode what would be refused is returned, for a caller that asks all hosts first.
options:
  path:
    description: The folder of all libraries.
    type: path
    required: true
  libraries:
    description: The versions, as the filter C(user_libraries_wanted) gives them.
    type: list
    elements: dict
    required: true
  mounts:
    description: Paths of filesystems; the one that the folder is below must be mounted here.
    type: list
    elements: str
    default: []
  environment:
    description: Environment of pip.
    type: dict
    default: {}
author: The Plumbline authors
"""

RETURN = r"""
machine:
  description: The host's, as C(uname -m) says.
  type: str
  returned: success
there:
  description: Of each version that is whole, by NAME/VERSION, content, python, and open or not.
  type: dict
  returned: success
steps:
  description: What was done, or would be in check mode, a line each.
  type: list
  elements: str
  returned: success
pending:
  description: Whether something would be done, in check mode.
  type: bool
  returned: success
refused:
  description: Why nothing may be done, in check mode; a sentence each.
  type: list
  elements: str
  returned: success
problems:
  description: Versions that this host cannot have, a sentence each. The others are built.
  type: list
  elements: str
  returned: success
"""


@dataclass(frozen=True)
class Step:
    """What is done with one version: build, describe or remove it."""

    action: str
    place: PurePosixPath
    library: Library | None
    text: str


# --- what is to be done --------------------------------------------------------------------------


def plan(
    wanted: Sequence[Library], unwanted: Sequence[Library], places: Places
) -> tuple[list[Step], list[str], list[str]]:
    """Steps, what is refused, and what this host cannot have. Removals first: they make room."""
    there = survey(places.root)
    steps: list[Step] = []
    refused: list[str] = []
    problems: list[str] = []
    for library in unwanted:
        if library.place in there or _unfinished(library, places):
            steps.append(Step("remove", library.place, None, f"{library.title} is removed"))
        elif os.path.lexists(places.folder(library.place)):
            refused.append(_foreign(library, places))
    declared = {library.place for library in (*wanted, *unwanted)}
    for place, built in there.items():
        if place not in declared and not places.is_open(place):
            text = f"{built.title} is removed, which was never published and is declared no more"
            steps.append(Step("remove", place, None, text))
    for library in wanted:
        try:
            steps += _steps_of(library, there.get(library.place), places)
        except Refused as problem:
            refused += problem.sentences
        except NoPython as problem:
            problems.append(str(problem))
    return steps, refused, problems


class NoPython(Exception):
    """Why this host cannot have a version; one sentence."""


def _unfinished(library: Library, places: Places) -> bool:
    work: Path = places.work_of(library.place)
    return work.is_dir()


def _foreign(library: Library, places: Places) -> str:
    return (
        f"{places.folder(library.place)} is there and was not made by this role; move it away, or "
        "choose another version"
    )


def _steps_of(library: Library, there: Built | None, places: Places) -> Iterator[Step]:
    python = python_of(library.python)
    if not python:
        raise NoPython(
            f"{library.title} needs {library.python}, which is not on this host; install it "
            "(node_base_extra_packages), or correct `python`"
        )
    if there is None:
        if os.path.lexists(places.folder(library.place)) and not _unfinished(library, places):
            raise Refused(_foreign(library, places))
        yield Step("build", library.place, library, f"{library.title} is built")
    elif not places.is_open(library.place):
        # Nobody has used it yet, so it may become another one.
        if (there.lock, there.python) != (library.lock, python):
            yield Step("build", library.place, library, f"{library.title} is built anew")
    elif there.lock != library.lock:
        raise Refused(
            f"{library.title} is published since {there.date} from a lock with the hash "
            f"{there.lock[:12]}, and its file has {library.lock[:12]} now; jobs use that version, "
            "so give the new lock a new version, or put the old file back"
        )
    elif there.python != python:
        raise NoPython(
            f"{library.title} was built with Python {there.python}, and {library.python} is "
            f"{python} now; give it a new version, and remove this one (state: absent)"
        )
    elif there.description != library.description:
        yield Step("describe", library.place, library, f"{library.title} gets its new description")


# --- doing it ------------------------------------------------------------------------------------


def describe(library: Library, places: Places) -> None:
    """What is published stays as it is but for this."""
    there = replace(survey(places.root)[library.place], description=library.description)
    write(places.folder(library.place) / MANIFEST, there.text(), OWN_FILE)


def remove(place: PurePosixPath, places: Places) -> None:
    """At once for whoever looks; then its files go. A run that died in between is finished."""
    make_folder(places.removed, Access(CLOSED, os.geteuid(), os.getegid()))
    modulefile = places.modulefile(place)
    modulefile.unlink(missing_ok=True)
    with suppress(OSError):  # other versions are in it, or it is not there
        modulefile.parent.rmdir()
    if os.path.lexists(places.folder(place)):
        name = f"{place.parent}-{place.name}-{time.time_ns()}"
        places.folder(place).rename(places.removed / name)
    with suppress(OSError):
        places.folder(place).parent.rmdir()


def leftovers(wanted: Sequence[Library], places: Places) -> list[Path]:
    """What was begun of versions that are whole or not declared, and what a run left behind it."""
    there = survey(places.root)
    keep = {places.work_of(library.place) for library in wanted if library.place not in there}
    begun = [path for path in sorted(places.building.glob("*/*")) if path not in keep]
    return [*begun, *sorted(places.removed.glob("*")), *sorted(places.tools.glob("*"))]


def sweep(paths: Sequence[Path], places: Places) -> None:
    """The folder of a version goes before what tells that it is ours."""
    there = survey(places.root)
    for path in paths:
        if path.is_relative_to(places.building):
            place = PurePosixPath(path.relative_to(places.building))
            if place not in there:
                with suppress(FileNotFoundError):
                    shutil.rmtree(places.folder(place))
                with suppress(OSError):
                    places.folder(place).parent.rmdir()
        shutil.rmtree(path)
        with suppress(OSError):
            path.parent.rmdir()


# --- the whole -----------------------------------------------------------------------------------


def run(
    entries: Sequence[Mapping[str, Any]],
    places: Places,
    mounts: Sequence[str],
    environment: Mapping[str, str],
    check_mode: bool,
) -> dict[str, Any]:
    """The module's result. Raises Refused, and OSError of the disk."""
    wanted = [library_of(entry) for entry in entries if entry.get("state") != "absent"]
    unwanted = [library_of(entry) for entry in entries if entry.get("state") == "absent"]
    if check_mode:
        steps, refused, problems = plan(wanted, unwanted, places)
        try:
            check_root(places.root, mounts, "user_libraries")
        except Refused as problem:
            refused = [*problem.sentences, *refused]
        left = leftovers(wanted, places)
    else:
        check_root(places.root, mounts, "user_libraries")
        with held(places.root, "user_libraries"):
            steps, refused, problems = plan(wanted, unwanted, places)
            if refused:
                raise Refused(*refused)
            left = leftovers(wanted, places)
            sweep(left, places)
            for step in steps:
                try:
                    if step.library and step.action == "describe":
                        describe(step.library, places)
                    elif step.library:
                        build(step.library, places, environment)
                    else:
                        remove(step.place, places)
                except Refused as problem:  # one that cannot be had keeps no other away
                    problems += problem.sentences
            sweep(leftovers(wanted, places), places)
    lines = [step.text for step in steps]
    lines += [f"{path} is removed, which no entry asks for" for path in left]
    return {
        "changed": bool(lines),
        "pending": bool(lines) and check_mode,
        "steps": lines,
        "refused": refused,
        "problems": problems,
        "machine": platform.machine(),
        "there": {
            str(place): {
                "content": built.content,
                "python": built.python,
                "open": places.is_open(place),
            }
            for place, built in survey(places.root).items()
        },
        "diff": {"prepared": "".join(f"{line}\n" for line in lines)},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "libraries": {"type": "list", "elements": "dict", "required": True},
            "mounts": {"type": "list", "elements": "str", "default": []},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    options = module.params
    places = Places(Path(options["path"]))
    environment = {str(name): str(value) for name, value in options["environment"].items()}
    try:
        result = run(
            options["libraries"], places, options["mounts"], environment, module.check_mode
        )
    except Refused as problem:
        module.fail_json(msg=f"user_libraries: {problem}.")
    except OSError as error:
        module.fail_json(
            msg=f"user_libraries: {error.filename or places.root}: {disk_problem(error)}; what was "
            "published before is as it was."
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
