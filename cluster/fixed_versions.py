"""Versions that have a known hole, declared and installed: the tables in fixed_versions.yml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_suffix(".yml")
DRIVER, KERNEL = "driver", "linux"

# A version in what declares it: `1:4.5.2-1`, `slurm-25.11.2.tar.bz2`.
_VERSION = re.compile(r"(?<![\d.])[1-9]\d*(?:\.\d+)*(?!\d*:)")


@dataclass(frozen=True, slots=True)
class Software:
    """What has a version, by a variable or on a node; `fixed` are versions without known holes.

    installed  the package that has it on a node, DRIVER for the loaded driver, KERNEL for the
               running kernel; "" without any
    systems    the distributions whose packages are judged, as "Debian 13"; empty for all
    """

    software: str
    branch: int
    fixed: tuple[str, ...]
    date: str
    source: str
    installed: str = ""
    systems: tuple[str, ...] = ()

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
def _table() -> Mapping[str, Mapping[str, Any]]:
    import yaml

    table: Mapping[str, Mapping[str, Any]] = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return table


def _software(entry: Mapping[str, Any], installed: str) -> Software:
    return Software(
        entry["software"],
        entry["branch"],
        tuple(map(str, entry["fixed"])),
        str(entry["date"]),
        entry["source"],
        installed,
        tuple(entry.get("systems", ())),
    )


@cache
def known() -> dict[str, Software]:
    """By variable."""
    return {
        variable: _software(entry, entry.get("installed", ""))
        for variable, entry in _table()["declared"].items()
    }


@cache
def installed() -> dict[str, Software]:
    """By package, DRIVER and KERNEL: what a node can be asked for."""
    declared = {software.installed: software for software in known().values() if software.installed}
    return declared | {
        package: _software(entry, package) for package, entry in _table()["packages"].items()
    }


def holes(versions: Mapping[str, str], system: str) -> list[str]:
    """A sentence for each version with a known hole; `versions` as `installed` names them."""
    judged = [(installed()[name], of) for name, of in versions.items() if name in installed()]
    found = (
        software.hole(version)
        for software, version in judged
        if not software.systems or system in software.systems
    )
    return [hole for hole in found if hole]
