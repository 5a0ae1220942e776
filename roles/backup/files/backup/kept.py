"""The archives of a host that are there: their names, and which of them go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

SUFFIX = ".tar.age"
CHECKSUM = ".sha256"
# What is being made has another name, which nobody takes for an archive.
PART = ".part"

_STAMP = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"(?P<whose>.+)-(?P<stamp>\d{8}T\d{6}Z)" + re.escape(SUFFIX))


def name(cluster: str, host: str, time: datetime) -> str:
    return f"{cluster}-{host}-{time.strftime(_STAMP)}{SUFFIX}"


def newest(folder: Path) -> list[Path]:
    """The newest archive of each host."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if match := _NAME.fullmatch(path.name):
            found[match["whose"]] = path
    return list(found.values())


def surplus(names: Iterable[str], whose: str, keep: int) -> list[str]:
    """What goes of one host's archives: all but the newest, of which at least one stays."""
    own: Mapping[str, str] = {
        match["stamp"]: match[0]
        for match in map(_NAME.fullmatch, names)
        if match and match["whose"] == whose
    }
    newest_first = sorted(own, reverse=True)
    return [own[stamp] for stamp in newest_first[max(1, keep) :]]


def whose(name: str) -> str:
    """The cluster and host of an archive's name."""
    match = _NAME.fullmatch(name)
    return match["whose"] if match else name


def remove(folder: Path, whose: str, keep: int) -> tuple[str, ...]:
    """Removes what goes, with its checksum; the names."""
    gone = surplus((path.name for path in folder.iterdir()), whose, keep)
    for name in gone:
        (folder / name).unlink()
        (folder / f"{name}{CHECKSUM}").unlink(missing_ok=True)
    return tuple(gone)
