"""Where homes are, and what is shared: what `shared_storage_*` declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Entries = Iterable[Mapping[str, Any]]


def shared_home(folders: Entries, exports: Entries, mounts: Entries) -> str:
    """The folder of homes on a shared filesystem; empty where no tier of that name is declared.

    It is a folder made for it, or where an export for it is mounted.
    """
    for folder in folders:
        if folder.get("tier") == "home":
            return str(folder["path"])
    sources = {
        f"{export['server']}:{export['path']}" for export in exports if export.get("tier") == "home"
    }
    return next((str(mount["path"]) for mount in mounts if mount.get("source") in sources), "")


def on_shared_filesystem(folder: str, mounts: Entries) -> bool:
    """Whether a folder is on a filesystem that several hosts mount."""
    return any(f"{folder}/".startswith(f"{mount['path']}/") for mount in mounts)


class FilterModule:
    def filters(self) -> dict[str, object]:
        return {"shared_home": shared_home, "on_shared_filesystem": on_shared_filesystem}
