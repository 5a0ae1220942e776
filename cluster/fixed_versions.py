"""Versions that have a known hole, declared and installed: the table in fixed_versions.yml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PATH = Path(__file__).with_suffix(".yml")
DRIVER = "driver"

# A version in what declares it: `1:4.5.2-1`, `slurm-25.11.2.tar.bz2`.
_VERSION = re.compile(r"(?<![\d.])[1-9]\d*(?:\.\d+)*(?!\d*:)")


@dataclass(frozen=True, slots=True)
class Software:
    """What one variable declares the version of; `fixed` are versions without known holes.

    installed  the package that has it on a node, DRIVER for the loaded driver; "" without either
    """

    software: str
    branch: int
    fixed: tuple[str, ...]
    date: str
    source: str
    installed: str = ""

    def hole(self, declared: str) -> str:
        """A sentence on a version with a known hole; empty for one without, or without a number."""
        match = _VERSION.search(declared.rpartition("/")[2])
        if not match or not (better := self.better(match.group())):
            return ""
        return (
            f"{self.software} {match.group()} has holes that {better} has not "
            f"(known since {self.date}, {self.source})"
        )

    def better(self, version: str) -> str:
        """The first version without the holes, of its branch if that has one.

        A part of a version, such as 580, stands for the newest that begins so.
        """
        own = _numbers(version)
        fixes = sorted(self.fixed, key=_numbers)
        same = [fix for fix in fixes if _numbers(fix)[: self.branch] == own[: self.branch]]
        newer = [
            fix for fix in same or fixes if own < _numbers(fix) and own != _numbers(fix)[: len(own)]
        ]
        return newer[0] if newer else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@cache
def known() -> dict[str, Software]:
    """By variable."""
    import yaml

    table = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return {
        variable: Software(
            entry["software"],
            entry["branch"],
            tuple(map(str, entry["fixed"])),
            str(entry["date"]),
            entry["source"],
            entry.get("installed", ""),
        )
        for variable, entry in table.items()
    }


def installed() -> dict[str, Software]:
    """By package, and DRIVER: what a node can be asked for."""
    return {software.installed: software for software in known().values() if software.installed}


def holes(versions: Mapping[str, str]) -> list[str]:
    """A sentence for each version with a known hole; `versions` by package, and DRIVER."""
    judged = installed()
    found = (judged[name].hole(version) for name, version in versions.items() if name in judged)
    return [hole for hole in found if hole]
