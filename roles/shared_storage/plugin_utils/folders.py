"""Folders on shared filesystems that are there for a tier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roles.shared_storage.plugin_utils import paths
from roles.shared_storage.plugin_utils.exports import TIERS

Entry = Mapping[str, Any]


def problems(folders: Sequence[Entry], mounts: Sequence[Entry]) -> list[str]:
    """Why folders cannot be made, a sentence each without its end."""
    return list(dict.fromkeys(_problems(folders, [str(mount["path"]) for mount in mounts])))


def _problems(folders: Sequence[Entry], points: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        path, tier = str(folder["path"]), str(folder["tier"])
        if tier not in TIERS:
            yield (
                f"the folder {path} is of the tier {tier}, which is none; known are "
                f"{', '.join(TIERS)}"
            )
        if paths.problem(path) or not any(paths.inside(path, point) for point in points):
            yield (
                f"the folder {path} is on no shared filesystem; those are mounted at "
                f"{', '.join(points) or 'no path'} (shared_storage_mounts)"
            )


def with_modes(folders: Sequence[Entry]) -> list[dict[str, str]]:
    """The folders with the mode of their tier, outer ones first."""
    return [
        {"path": str(folder["path"]), "mode": str(TIERS[str(folder["tier"])]["mode"])}
        for folder in sorted(folders, key=lambda folder: str(folder["path"]))
    ]
