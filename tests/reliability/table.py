"""The table of the faults, one row for each that lost nothing: .cache/test/reliability.md."""

from __future__ import annotations

from dataclasses import dataclass

from tests.live_cluster import REPOSITORY

PATH = REPOSITORY / ".cache/test/reliability.md"
HEAD = (
    "| fault | | alert, seen after | jobs, each once in accounting | begun again |"
    " jobs start again after |\n"
    "|---|---|---|---|---|---|\n"
)


@dataclass
class Row:
    """What a fault came to; filled while it is there."""

    name: str
    what: str
    alert: str = "–"
    jobs: int = 0
    again: int = 0
    recovered_s: float = 0.0


def write(row: Row) -> None:
    """Adds a row, in place of an earlier one of the same fault."""
    cells = (
        f"`{row.name}`",
        row.what,
        row.alert,
        str(row.jobs),
        str(row.again),
        f"{row.recovered_s:.0f} s",
    )
    earlier = PATH.read_text(encoding="utf-8").splitlines()[2:] if PATH.exists() else []
    rows = [line for line in earlier if not line.startswith(f"| {cells[0]} |")]
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(HEAD + "\n".join([*rows, f"| {' | '.join(cells)} |"]) + "\n", encoding="utf-8")
