"""Whether the disk has room for versions of data sets, before anything of them is fetched.

Modules find it as ansible.module_utils.datasets_room.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible.module_utils.datasets_entry import Dataset, File
from ansible.module_utils.datasets_publish import Settings, names, size_of
from ansible.module_utils.download import NoFile, length
from ansible.module_utils.published import amount
from ansible.module_utils.refused import Refused


@dataclass(frozen=True)
class Need:
    """Bytes that one version takes: while it is fetched and unpacked, and when it is there."""

    dataset: Dataset
    fetch: int
    peak: int
    stay: int


def need_of(dataset: Dataset, settings: Settings) -> Need:
    """As the servers say. Raises Refused where one does not have the file."""
    fetch = kept = inside = 0
    for file in dataset.files:
        whole = _offered(file, settings) or 0
        done, part = names(settings.work_of(dataset), file)
        here = whole if done.exists() else size_of(part)
        fetch += max(0, whole - here)
        kept += whole if file.archive == "none" else 0
        inside += whole if file.archive != "none" else 0
    # Without a declared size an archive takes its own once more, at least.
    unpacked = max(0, dataset.size - kept) if dataset.size else inside
    return Need(dataset, fetch, fetch + unpacked, kept + unpacked)


def _offered(file: File, settings: Settings) -> int | None:
    problem = None
    for url in (file.url, *file.mirrors):
        try:
            offered: int | None = length(url, settings.timeout)
            return offered
        except NoFile as error:
            problem = problem or error
    raise Refused(str(problem))


def check_room(needs: Sequence[Need], removed: int, root: Path) -> None:
    """Refuses, before anything is fetched, what does not fit one after another."""
    there = next(path for path in (root, *root.parents) if path.exists())
    disk = os.statvfs(there)
    free = disk.f_bavail * disk.f_frsize + removed
    taken = 0
    for need in needs:
        if taken + need.peak > free:
            raise Refused(
                f"{root} has {amount(free)} free, and {amount(taken + need.peak)} are needed until "
                f"{need.dataset.title} is fetched and unpacked; make room, or leave it out"
            )
        taken += need.stay
