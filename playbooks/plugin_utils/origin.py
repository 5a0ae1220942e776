"""Where a value was written: Ansible remembers it for all but true, false and null."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ansible._internal._datatag._tags import Origin

_SCALAR = re.compile(r"[^\s,}\]#]+")
_READ = {".yml", ".yaml", ".json", ".ini", ""}


@cache
def lines(path: str) -> tuple[str, ...]:
    """A file's lines, none of one that cannot be read."""
    try:
        return tuple(Path(path).read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return ()


def as_written(value: Any) -> str:
    """A number's text in its file, such as 24:00:00 for 86400; "" where it is not known."""
    origin = Origin.get_tag(value)
    if origin is None or not origin.path or not origin.line_num or not origin.col_num:
        return ""
    text = lines(origin.path)
    if origin.line_num > len(text):
        return ""
    match = _SCALAR.match(text[origin.line_num - 1], origin.col_num - 1)
    return match[0] if match else ""


@cache
def _files(sources: tuple[str, ...]) -> tuple[Path, ...]:
    paths: list[Path] = []
    for source in sources:
        root = Path(source)
        if root.is_file():
            paths += [root, *sorted(root.parent.glob("*_vars/**/*.y*ml"))]
        elif root.is_dir():
            paths += sorted(path for path in root.rglob("*") if path.is_file())
    return tuple(path for path in paths if path.suffix in _READ)


def where_set(
    name: str, value: Any, sources: Sequence[str], owners: Collection[str] | None = None
) -> str:
    """Where a variable is set, as ` (set in FILE:LINE)`; nothing when that is not known.

    By its value, else by the first of our files and the site's that has the name as a key. `owners`
    are the host and its groups, whose files alone can set it.
    """
    origin = Origin.get_tag(value)
    if origin is not None and origin.path:
        line = f":{origin.line_num}" if origin.line_num else ""
        return f" (set in {shown(origin.path)}{line})"
    if origin is not None and origin.description:
        return f" (set in {str(origin.description).strip('<>')})"
    key = re.compile(rf"^\s*['\"]?{re.escape(name)}['\"]?\s*[:=]")
    for path in _files(tuple(sources)):
        if owners is not None and not _may_set(path, owners):
            continue
        for number, line in enumerate(lines(str(path)), start=1):
            if key.search(line):
                return f" (set in {shown(str(path))}:{number})"
    return ""


def _may_set(path: Path, owners: Collection[str]) -> bool:
    """Whether a file is one of an inventory, or of variables of these groups and hosts."""
    for above in (path, *path.parents):
        if above.parent.name in ("group_vars", "host_vars"):
            return (above.stem if above is path else above.name) in owners
    return True


def written_at(value: object) -> str:
    """Where a value is written, as ` (set in FILE:LINE)`; nothing when that is not known."""
    return where_set("", value, ()) if Origin.get_tag(value) is not None else ""


def comes_from(value: Any, folder: Path) -> bool:
    """Whether a value is written in a file below a folder, by whatever link it was found."""
    origin = Origin.get_tag(value)
    if origin is None or not origin.path:
        return False
    return _lies_below(origin.path, folder)


@cache
def _lies_below(path: str, folder: Path) -> bool:
    return Path(path).resolve().is_relative_to(folder)


def shown(path: str) -> str:
    """A path as one would type it here."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
