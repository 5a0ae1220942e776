"""Names of Slurm's packages, by part and by who packed them: playbooks/vars/slurm_packages.yml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

PATH = Path(__file__).resolve().parents[1] / "vars" / "slurm_packages.yml"

DISTRIBUTION = "distribution"
SCHEDMD = "schedmd"

Table = Mapping[str, Mapping[str, Sequence[str]]]  # packaging -> part -> packages


@cache
def table() -> Table:
    """What each part is called, by packaging."""
    document: Table = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return document


def packaging(method: str) -> str:
    """Whose packages an install method brings."""
    return DISTRIBUTION if method == "distro" else SCHEDMD


def names(parts: Iterable[str], packed_by: str = DISTRIBUTION) -> list[str]:
    """The packages of parts, each once. Raises KeyError of a part or a packaging that is none."""
    ours = table()[packed_by]
    return list(dict.fromkeys(name for part in parts for name in ours[part]))


def anybodys(parts: Iterable[str]) -> list[str]:
    """The packages of parts, whoever packed them: what goes, goes under all its names."""
    wanted = list(parts)
    return [name for packed_by in table() for name in names(wanted, packed_by)]
