"""Numbers that a test measured and the budget of scripts/test judges (tests/budget.tsv).

A part of scripts/test that has such a number notes it; a program that is not Python writes the same
line, `NAME VALUE`, to .cache/test/counts.tsv. A name that ends in `_cpu` is CPU-seconds, which a
busy machine has more of; any other is a count, of which not one more is let pass.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COUNTS = Path(__file__).resolve().parents[2] / ".cache/test/counts.tsv"
ANY_PART = "*"


@dataclass(frozen=True, slots=True)
class Count:
    """A number, its name, and the part of the run that noted it, where that is known."""

    name: str
    value: float
    part: str = ANY_PART

    @property
    def is_cpu(self) -> bool:
        return self.name.endswith("_cpu")


def note(name: str, value: float, path: Path = COUNTS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = os.environ.get("PLUMBLINE_PART", ANY_PART)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{name}\t{value:g}\t{part}\n")


def read(path: Path = COUNTS) -> Iterator[Count]:
    """Every number that was noted."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            name, value, *part = line.split(None, 2)
            yield Count(name, float(value), part[0] if part else ANY_PART)
