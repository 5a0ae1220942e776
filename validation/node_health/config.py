"""What a node is declared to be and which checks it has: /etc/plumbline/node_health.json.

The role writes the file and has judged it. It is read strictly all the same: a check that is
misread is one that passes because it did not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import settings_file
from cluster.declaration import Gpus

FILE = Path("/etc/plumbline/node_health.json")
VERSION = 1
CONTEXTS = ("prolog", "epilog", "check")
ON_FAIL = ("drain", "log")


@dataclass(frozen=True)
class Check:
    """One of command and builtin is there. timeout_s is in seconds; an empty reason means that
    the check's own words are told.
    """

    name: str
    contexts: tuple[str, ...]
    on_fail: str
    timeout_s: float
    builtin: str | None = None
    command: tuple[str, ...] = ()
    reason: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HealthSettings:
    """node is its name in Slurm; memory_mb what Slurm may give to jobs, 0 where nobody said it."""

    node: str
    gpus: Gpus
    fabric: str
    hcas: str | None
    memory_mb: int
    shared_filesystems: tuple[str, ...]
    checks: tuple[Check, ...]

    def of(self, context: str) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if context in check.contexts)


def read(path: Path = FILE) -> HealthSettings:
    """Raises BadConfig for a file that is not there, or is not what the role writes."""
    return settings_file.read(path, parse)


def parse(document: Mapping[str, Any]) -> HealthSettings:
    """Raises KeyError, TypeError or ValueError for anything else than the role writes."""
    if document["version"] != VERSION:
        raise ValueError(f"is of version {document['version']!r}, not {VERSION}")
    gpus = document["gpus"]
    return HealthSettings(
        node=_text(document["node"]),
        gpus=Gpus(
            _text(gpus["model"]),
            _whole(gpus["count"]),
            nvml=gpus["nvml"] is True,
            mig=tuple((_text(name), _whole(each)) for name, each in gpus["mig"].items()),
        ),
        fabric=_text(document["fabric"]),
        hcas=document["hcas"] or None,
        memory_mb=_whole(document["memory_mb"]),
        shared_filesystems=tuple(map(_text, document["shared_filesystems"])),
        checks=tuple(_check(name, item) for name, item in document["checks"].items()),
    )


def _check(name: str, item: Mapping[str, Any]) -> Check:
    check = Check(
        name=name,
        contexts=tuple(item["contexts"]),
        on_fail=item["on_fail"],
        timeout_s=float(item["timeout_s"]),
        builtin=item.get("builtin"),
        command=tuple(map(_text, item.get("command", ()))),
        reason=_text(item.get("reason", "")),
        arguments=dict(item.get("arguments", {})),
    )
    if (check.builtin is None) == (not check.command):
        raise ValueError(f"{name} needs either a command or a builtin")
    if check.on_fail not in ON_FAIL or not set(check.contexts) <= set(CONTEXTS):
        raise ValueError(f"{name} has contexts {check.contexts} and on_fail {check.on_fail!r}")
    if check.timeout_s <= 0:
        raise ValueError(f"{name} has no time")
    return check


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r} is no whole number")
    return value
