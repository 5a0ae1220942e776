#!/usr/bin/python
"""Publishes versions of data sets: each is fetched, verified, unpacked, and there at once.

All work is done in a folder beside the published ones, which only root enters. What was fetched of
a file stays there until its version has its name, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.datasets_entry import (
    MANIFEST,
    Dataset,
    Published,
    dataset_of,
    published_of,
)
from ansible.module_utils.datasets_pages import GROUP, MODULEFILES, pages
from ansible.module_utils.datasets_publish import PRIVATE, Log, Settings, access_of, publish
from ansible.module_utils.datasets_room import Need, check_room, need_of
from ansible.module_utils.download import disk_problem
from ansible.module_utils.published import PAGE, amount, bring_pages, check_root, held, is_ours
from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import OWN_FILE, Access, make_folder, surplus, write

DOCUMENTATION = r"""
module: datasets
short_description: Publish versions of data sets on a shared filesystem
description:
  - Fetches, verifies and unpacks what is declared and not there, and gives it its name at once.
  - Removes a version that is declared with C(state=absent), and none besides. Each has a manifest.
  - Is refused, with a sentence for each reason and nothing fetched, where that can be known.
  - In check mode servers are asked how much there is, and nothing is fetched.
options:
  root:
    description: The folder of all data sets.
    type: path
    required: true
  published:
    description: The versions; the role's argument specs describe an entry.
    type: list
    elements: dict
    required: true
  mounts:
    description: Paths of filesystems; the one that the root is below must be mounted on this host.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds of silence after which a connection is given up.
    type: int
    default: 60
  tries:
    description: Connections in a row that may break off without having brought anything.
    type: int
    default: 5
author: The Plumbline authors
"""

RETURN = r"""
pending:
  description: Whether something would be done, in check mode.
  type: bool
  returned: success
steps:
  description: What was done, or would be in check mode, a line each.
  type: list
  elements: str
  returned: success
"""


@dataclass(frozen=True)
class Step:
    """What is done with one version: fetch, describe, open or remove."""

    action: str
    dataset: Dataset
    text: str


# --- what is there -------------------------------------------------------------------------------


def survey(root: Path) -> dict[str, Published]:
    """The versions that are there, by their place below the root."""
    found = {}
    for path in sorted(root.glob(f"[!.]*/[!.]*/{MANIFEST}")):
        with suppress(ValueError):
            found[path.parent.relative_to(root).as_posix()] = published_of(path.read_text("utf-8"))
    return found


# --- what is to be done --------------------------------------------------------------------------


def plan(wanted: Iterable[Dataset], unwanted: Iterable[Dataset], settings: Settings) -> list[Step]:
    """Removals first, for they make room. Raises Refused."""
    there = survey(settings.root)
    steps, problems = [], []
    for dataset in unwanted:
        if str(dataset.place) in there:
            steps.append(Step("remove", there[str(dataset.place)].dataset, "is removed"))
        elif os.path.lexists(settings.folder(dataset)):
            problems.append(_foreign(settings, dataset))
    for dataset in wanted:
        try:
            steps += _steps_of(dataset, there.get(str(dataset.place)), settings)
        except Refused as refused:
            problems += [f"{dataset.title}: {sentence}" for sentence in refused.sentences]
    if problems:
        raise Refused(*problems)
    return steps


def _foreign(settings: Settings, dataset: Dataset) -> str:
    return (
        f"{settings.folder(dataset)} is there and was not published from a declaration; move it "
        "away, or choose another version"
    )


def _steps_of(dataset: Dataset, there: Published | None, settings: Settings) -> Iterator[Step]:
    folder = settings.folder(dataset)
    access = access_of(dataset.readers)
    if there is None:
        if os.path.lexists(folder):
            raise Refused(_foreign(settings, dataset))
        yield Step("fetch", dataset, "is fetched")
        return
    if there.dataset.content != dataset.content:
        published = ", ".join(sorted(file.sha256[:12] for file in there.dataset.files))
        declared = ", ".join(sorted(file.sha256[:12] for file in dataset.files))
        raise Refused(
            f"it is published since {there.date} with the files {published} (SHA-256), and "
            f"{declared} are declared; a version never changes: give it a new version"
        )
    if there.dataset != dataset:
        yield Step("describe", dataset, "gets its new description")
    if not access.holds(folder.lstat()):
        readers = f"the group {dataset.readers}" if dataset.readers else "everybody"
        yield Step("open", dataset, f"is readable for {readers}")


# --- doing it ------------------------------------------------------------------------------------


def describe(dataset: Dataset, settings: Settings) -> None:
    path = settings.folder(dataset) / MANIFEST
    there = published_of(path.read_text("utf-8"))
    write(path, replace(there, dataset=dataset).text(), OWN_FILE)


def remove(dataset: Dataset, settings: Settings) -> None:
    """At once for whoever looks; then its files go. A run that died in between is finished."""
    gone = settings.work / "removed"
    make_folder(gone, Access(PRIVATE, os.geteuid(), os.getegid()))
    settings.folder(dataset).rename(gone / f"{dataset.name}-{dataset.version}-{time.time_ns()}")
    shutil.rmtree(gone)


def do(step: Step, settings: Settings, log: Log) -> None:
    if step.action == "fetch":
        publish(step.dataset, settings, log)
    elif step.action == "describe":
        describe(step.dataset, settings)
    elif step.action == "open":
        access_of(step.dataset.readers).grant(settings.folder(step.dataset))
    else:
        remove(step.dataset, settings)


def do_all(steps: Iterable[Step], settings: Settings, log: Log) -> None:
    """A version that cannot be had does not keep the others away. Raises Refused, OSError."""
    problems: list[str] = []
    for step in steps:
        try:
            do(step, settings, log)
        except Refused as refused:
            problems += refused.sentences
    if problems:
        raise Refused(*problems)


# --- pages and leftovers -------------------------------------------------------------------------


def leftovers(wanted: Iterable[Dataset], settings: Settings) -> list[Path]:
    """What was fetched for versions that are declared no more, and what a removal left."""
    keep = {settings.work_of(dataset) for dataset in wanted}
    return [
        path
        for path in sorted(settings.work.glob("*/*"))
        if path not in keep and path.parent.is_dir()
    ]


def write_pages(published: Iterable[Published], settings: Settings, check_mode: bool) -> list[str]:
    """Brings pages and modulefiles to what is there; the paths that differ."""
    root = settings.root
    files = pages(root, published)
    patterns = [f"*/{PAGE}", f"{MODULEFILES}/{GROUP}/*/*.lua"]
    stale = [
        name
        for name in surplus(root, files, patterns)
        if name.startswith(MODULEFILES) or is_ours(root / name)
    ]
    paths: list[str] = bring_pages(root, files, stale, check_mode)
    return paths


# --- the whole -----------------------------------------------------------------------------------


def run(
    entries: Sequence[Mapping[str, Any]], settings: Settings, check_mode: bool
) -> dict[str, Any]:
    """The module's result. Raises Refused, and OSError of the disk."""
    wanted: list[Dataset] = []
    unwanted: list[Dataset] = []
    for entry in entries:
        gone = entry.get("state") == "absent"
        (unwanted if gone else wanted).append(dataset_of(entry))
    check_root(settings.root, settings.mounts, "datasets")
    if check_mode:
        steps, needs, leftover = _all(wanted, unwanted, settings)
        changed_pages = write_pages(survey(settings.root).values(), settings, check_mode=True)
    else:
        with held(settings.root, "datasets"):
            settings.log.write_text("", "utf-8")
            log = Log(settings.log)
            steps, needs, leftover = _all(wanted, unwanted, settings)
            try:
                do_all(steps, settings, log)
            finally:  # those that were published have their pages
                there = survey(settings.root).values()
                changed_pages = write_pages(there, settings, check_mode=False)
            for path in leftover:
                shutil.rmtree(path)
                with suppress(OSError):
                    path.parent.rmdir()
    fetched = {need.dataset: need.fetch for need in needs}
    lines = [_line(step, fetched) for step in steps]
    lines += [f"{path} is removed, which no entry asks for" for path in leftover]
    return {
        "changed": bool(lines or changed_pages),
        "pending": bool(lines or changed_pages) and check_mode,
        "steps": lines,
        "diff": {"prepared": "".join(f"{line}\n" for line in lines + changed_pages)},
    }


def _all(
    wanted: Sequence[Dataset], unwanted: Sequence[Dataset], settings: Settings
) -> tuple[list[Step], list[Need], list[Path]]:
    steps = plan(wanted, unwanted, settings)
    needs = [need_of(step.dataset, settings) for step in steps if step.action == "fetch"]
    there = survey(settings.root)
    removed = sum(there[str(step.dataset.place)].bytes for step in steps if step.action == "remove")
    check_room(needs, removed, settings.root)
    return steps, needs, leftovers(wanted, settings)


def _line(step: Step, fetched: Mapping[Dataset, int]) -> str:
    if step.action != "fetch":
        return f"{step.dataset.title} {step.text}"
    places = {urlsplit(file.url).netloc or "this host" for file in step.dataset.files}
    size = amount(fetched[step.dataset]) if fetched[step.dataset] else "of unknown size"
    return f"{step.dataset.title} {step.text}: {size} from {', '.join(sorted(places))}"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "published": {"type": "list", "elements": "dict", "required": True},
            "mounts": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 60},
            "tries": {"type": "int", "default": 5},
        },
        supports_check_mode=True,
    )
    options = module.params
    settings = Settings(
        Path(options["root"]), tuple(options["mounts"]), options["timeout"], options["tries"]
    )
    try:
        result = run(options["published"], settings, module.check_mode)
    except Refused as problem:
        module.fail_json(msg=f"datasets: {problem}.")
    except OSError as error:
        module.fail_json(
            msg=f"datasets: {error.filename or settings.root}: {disk_problem(error)}; what was "
            "published before is as it was."
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
