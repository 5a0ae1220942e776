"""What the program is told: /etc/plumbline/nccl_inspector.json, written by the role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import settings_file
from roles.nccl_inspector.files.nccl_inspector.actions import ACTIONS

FILE = Path("/etc/plumbline/nccl_inspector.json")


@dataclass(frozen=True)
class InspectorSettings:
    """`polls` is how many rounds in a row see a hang before it is one; 0 watches no job."""

    file: Path
    folder: Path
    interval_s: float
    series: int
    polls: int
    action: str
    mail_program: str


def read(path: Path = FILE) -> InspectorSettings:
    """Raises BadConfig for a file that is not there, or is not what the role writes."""
    return settings_file.read(path, parse)


def parse(document: Mapping[str, Any]) -> InspectorSettings:
    """Raises KeyError, TypeError or ValueError for anything else than the role writes."""
    config = InspectorSettings(
        file=Path(document["file"]),
        folder=Path(document["folder"]),
        interval_s=float(document["interval_s"]),
        series=int(document["series"]),
        polls=int(document["polls"]),
        action=str(document["action"]),
        mail_program=str(document["mail_program"]),
    )
    if config.action not in ACTIONS:
        raise ValueError(f"action is {config.action}; it is one of {', '.join(ACTIONS)}")
    if config.interval_s <= 0:
        raise ValueError(f"interval_s is {config.interval_s:g}; it is more than 0")
    if config.file.suffix != ".prom":
        raise ValueError(f"{config.file} does not end in .prom; node_exporter would not read it")
    return config
