"""Filters that group_vars use; the cluster itself is worked out by preflight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def inventory_folder(sources: str | Sequence[str]) -> str:
    """The folder of the first inventory source, whatever number of `-i`; a run has one.

    A source that is a list of hosts (`-i host1,host2`) has none; without any other it is the
    current folder.
    """
    for source in [sources] if isinstance(sources, str) else sources:
        path = Path(source)
        if path.exists() or "," not in source:
            folder = path if path.is_dir() else path.parent
            return str(folder.absolute())
    return str(Path.cwd())


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"inventory_folder": inventory_folder}
