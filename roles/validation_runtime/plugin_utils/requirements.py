"""What pip is to install: the lines of a requirements file, and what of them a node lacks.

Pure functions. A requirement is what pip takes, such as `torch==2.13.0`; a file may add hashes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

TORCH = "torch"


@dataclass(frozen=True, slots=True)
class Pin:
    """The version that `==` names, and its label: `2.13.0` and `cu126` of `torch==2.13.0+cu126`."""

    version: str
    label: str = ""


def entries(text: str) -> Iterator[str]:
    """The requirements in the text of a file, without comments, options and hashes."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        entry = re.split(r"(?:^|\s)#|\s--", line)[0].strip()
        if entry and not entry.startswith("-"):
            yield entry


def problem(lines: Iterable[str]) -> str:
    """Why the first entry that pip would refuse is none; empty when there is no such entry."""
    for line in lines:
        try:
            Requirement(line)
        except InvalidRequirement:
            return f"{line!r} is no requirement; write it as pip does, such as torch==2.13.0."
    return ""


def torch_entry(lines: Iterable[str]) -> str:
    """The entry that names torch; empty without one."""
    return next((line for line in lines if _name(Requirement(line).name) == TORCH), "")


def pin(entry: str) -> Pin | None:
    """What an entry holds still; None when it leaves the version open, or names a file."""
    specifiers = [(part.operator, part.version) for part in Requirement(entry).specifier]
    if len(specifiers) != 1 or specifiers[0][0] != "==" or "*" in specifiers[0][1]:
        return None
    version, _, label = specifiers[0][1].partition("+")
    return Pin(version, label)


def with_build(lines: Sequence[str], build: str) -> list[str]:
    """The entries with torch of a certain build; an entry that has a label keeps it."""
    entry = torch_entry(lines)
    held = pin(entry) if entry else None
    if not build or held is None or held.label:
        return list(lines)
    return [
        line.replace(f"=={held.version}", f"=={held.version}+{build}") if line == entry else line
        for line in lines
    ]


def lacking(text: str, listed: str) -> list[str]:
    """The entries of a file that an environment does not have, or has in another version.

    `listed` is what `pip list --format=json` prints; anything else is an environment with nothing.
    An entry for other systems (`; sys_platform == …`) may be away.
    """
    try:
        rows = json.loads(listed)
        have = {_name(str(row["name"])): str(row["version"]) for row in rows}
    except (ValueError, TypeError, KeyError):
        have = {}
    return [entry for entry in entries(text) if _lacks(Requirement(entry), have)]


def _lacks(requirement: Requirement, have: dict[str, str]) -> bool:
    version = have.get(_name(requirement.name))
    if version is None:
        return requirement.marker is None
    return not requirement.specifier.contains(version, prereleases=True)


def _name(written: str) -> str:
    return str(canonicalize_name(written))
