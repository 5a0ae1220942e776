"""What became of each part of a run of scripts/test, and what it cost: a line of a file each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LOGS = Path(".cache/test")
RESULTS = LOGS / "results"

PASSED = "ok"
FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Result:
    """One part: seconds on the clock, and CPU-seconds of its processes here and of its nodes."""

    part: str
    verdict: str
    seconds: float = 0.0
    control: float = 0.0
    nodes: float | None = None  # it has none
    ended: float = 0.0

    @property
    def passed(self) -> bool:
        return self.verdict == PASSED

    def line(self) -> str:
        nodes = "-" if self.nodes is None else f"{self.nodes:.2f}"
        costs = f"{self.seconds:.1f}\t{self.control:.2f}\t{nodes}\t{self.ended:.1f}"
        return f"{self.part}\t{self.verdict}\t{costs}\n"


def add(result: Result, path: Path = RESULTS) -> None:
    """In one write, so that parts that end together do not mix their lines."""
    with path.open("a", encoding="utf-8") as file:
        file.write(result.line())


def read(path: Path = RESULTS) -> Iterator[Result]:
    for line in path.read_text(encoding="utf-8").splitlines():
        part, verdict, seconds, control, nodes, ended = line.split("\t")
        used = None if nodes == "-" else float(nodes)
        yield Result(part, verdict, float(seconds), float(control), used, float(ended))
