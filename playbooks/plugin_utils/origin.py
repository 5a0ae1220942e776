"""Where a value was written: Ansible remembers it for all but true, false and null."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ansible._internal._datatag._tags import Origin

_SCALAR = re.compile(r"[^\s,}\]#]+")
_READ = {".yml", ".yaml", ".json", ".ini", ""}


@cache
def _lines(path: str) -> tuple[str, ...]:
    try:
        return tuple(Path(path).read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return ()


def as_written(value: Any) -> str:
    """A number's text in its file, such as 24:00:00 for 86400; "" where it is not known."""
    origin = Origin.get_tag(value)
    if origin is None or not origin.path or not origin.line_num or not origin.col_num:
        return ""
    lines = _lines(origin.path)
    if origin.line_num > len(lines):
        return ""
    match = _SCALAR.match(lines[origin.line_num - 1], origin.col_num - 1)
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


def where_set(name: str, value: Any, sources: Sequence[str]) -> str:
    """Where a variable is set, as ` (set in FILE)`; nothing when that is not known.

    By its value, else by the first of our files and the site's that has the name as a key.
    """
    origin = Origin.get_tag(value)
    if origin is not None and origin.path:
        line = f":{origin.line_num}" if origin.line_num else ""
        return f" (set in {_short(origin.path)}{line})"
    if origin is not None and origin.description:
        return f" (set in {str(origin.description).strip('<>')})"
    key = re.compile(rf"^\s*['\"]?{re.escape(name)}['\"]?\s*[:=]")
    for path in _files(tuple(sources)):
        if any(key.search(line) for line in _lines(str(path))):
            return f" (set in {_short(str(path))})"
    return ""


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


def _short(path: str) -> str:
    """A path as one would type it here."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
