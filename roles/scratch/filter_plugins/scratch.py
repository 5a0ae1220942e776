"""Whether a folder may be cleaned of old files, and what of it is spared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Any

# What a system keeps its own files in. A folder of these names is not cleaned, nor is one above it.
SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run"),
    *("/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/spool", "/var/tmp"),
)
PLAIN = re.compile(r"(/[A-Za-z0-9._+@=,-]+)+")


def scratch_problems(root: str, keep_days: int, homes: str) -> list[str]:
    """A sentence for each reason not to clean it."""
    path = PurePosixPath(root)
    if not PLAIN.fullmatch(root) or ".." in path.parts:
        return [
            f"scratch_root is {root!r}; give the full path of a folder, of letters, digits and "
            "._+@=,- without a slash at its end"
        ]
    problems = []
    if root in SYSTEM or {"etc", "usr", "proc", "sys", "dev"} & {*path.parts[1:2]}:
        problems.append(
            f"scratch_root is {root}, which is the system's, and old files in it would be removed; "
            "give a folder of its own, such as /scratch"
        )
    if homes and PurePosixPath(homes).is_relative_to(path):
        problems.append(
            f"scratch_root is {root}, and the homes in {homes} would be cleaned of old files; give "
            "a folder beside them"
        )
    if keep_days < 0:
        problems.append(f"scratch_keep_days is {keep_days}; give days, or 0 to remove nothing")
    return problems


def scratch_spares(root: str, folders: Iterable[str]) -> list[str]:
    """Those of the folders that are below it. The root itself is none: it would not be cleaned."""
    path = PurePosixPath(root)
    below = (PurePosixPath(folder) for folder in folders if folder)
    return sorted({str(one) for one in below if path in one.parents})


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"scratch_problems": scratch_problems, "scratch_spares": scratch_spares}
