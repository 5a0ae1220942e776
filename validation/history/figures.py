"""Which figures are kept, and which direction is worse: `directions.yml`."""

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import DataError

FILE = Path(__file__).parent / "directions.yml"
_KEYS = {"check", "name", "unit", "worse"}


class Worse(enum.Enum):
    LESS = "less"
    MORE = "more"
    NEITHER = "neither"  # kept and shown, not compared
    OMIT = "omit"  # not kept


@dataclass(frozen=True, slots=True)
class _Rule:
    worse: Worse
    check: re.Pattern[str] | None
    name: re.Pattern[str] | None
    unit: str | None

    def fits(self, check: str, name: str, unit: str) -> bool:
        return (
            (self.check is None or self.check.fullmatch(check) is not None)
            and (self.name is None or self.name.fullmatch(name) is not None)
            and (self.unit is None or self.unit == unit)
        )


@cache
def worse(check: str, name: str, unit: str) -> Worse:
    """Which direction of a figure is worse, and whether it is kept.

    Raises DataError where the table is wrong.

    >>> worse("hbm", "GPU 3, copy", "GB/s")
    <Worse.LESS: 'less'>
    """
    return next((rule.worse for rule in _rules() if rule.fits(check, name, unit)), Worse.OMIT)


def pooled(name: str) -> str:
    """A figure without the number of its GPU: the GPUs of a node are alike.

    >>> pooled("GPU 3, copy"), pooled("GPU 0 to 7"), pooled("busbw 8 GiB")
    ('GPU, copy', 'GPU to GPU', 'busbw 8 GiB')
    """
    return re.sub(r"\bGPU \d+( to \d+)?", lambda m: "GPU to GPU" if m[1] else "GPU", name)


@cache
def _rules() -> tuple[_Rule, ...]:
    return read(yaml.safe_load(FILE.read_text(encoding="utf-8")), str(FILE))


def read(document: Any, source: str) -> tuple[_Rule, ...]:
    """Raises DataError with every problem of the table."""
    entries = document.get("rules") if isinstance(document, dict) and len(document) == 1 else None
    if not isinstance(entries, list) or not entries:
        raise DataError(source, ["expected one key, rules, with a list of rules"])
    problems: list[str] = []
    rules = [_rule(entry, f"rule {number}", problems) for number, entry in enumerate(entries, 1)]
    if problems:
        raise DataError(source, problems)
    return tuple(rule for rule in rules if rule is not None)


def _rule(entry: Any, where: str, problems: list[str]) -> _Rule | None:
    if not isinstance(entry, dict) or not all(isinstance(v, str) for v in entry.values()):
        problems.append(f"{where}: expected check, name, unit and worse, each a text")
        return None
    if unknown := sorted(map(str, entry.keys() - _KEYS)):
        problems.append(f"{where}: unknown key {', '.join(unknown)}; known are {_listed(_KEYS)}")
        return None
    directions = [direction.value for direction in Worse]
    if entry.get("worse") not in directions:
        problems.append(f"{where}: worse must be one of {', '.join(directions)}")
        return None
    if len(entry) == 1:
        problems.append(f"{where}: say of which check, name or unit it is")
        return None
    try:
        check, name = (re.compile(entry[k]) if k in entry else None for k in ("check", "name"))
    except re.error as error:
        problems.append(f"{where}: not a regular expression: {error}")
        return None
    return _Rule(Worse(entry["worse"]), check, name, entry.get("unit"))


def _listed(names: Sequence[str] | set[str]) -> str:
    return ", ".join(sorted(names))
