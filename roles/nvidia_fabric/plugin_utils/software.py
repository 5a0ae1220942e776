"""Which packages a node's NVLink fabric needs. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Table = Sequence[Mapping[str, Any]]

SWITCHES, NVLINK5, IMEX = "switches", "nvlink5", "imex"


def parts(state: Mapping[str, Any], imex: bool) -> list[str]:
    """What the node needs software for, by the devices that are there; IMEX is by declaration."""
    there = {
        SWITCHES: state["switches"] or state["bridges"],
        NVLINK5: state["bridges"],
        IMEX: imex,
    }
    return [part for part, needed in there.items() if needed]


def packages(driver: str, needed: Iterable[str], table: Table) -> dict[str, list[str]]:
    """Packages in exactly the driver's version (`pinned`), and in any (`free`).

    The first row of the table counts whose branch the driver has; without a driver there is none.
    """
    branch = int(driver.partition(".")[0] or 0)
    row = next((row for row in table if branch >= row["first_branch"]), {})

    def names(kind: str) -> list[str]:
        listed = (name for part in needed for name in row.get(part, {}).get(kind, ()))
        return [name.format(branch=branch) for name in listed]

    return {"pinned": names("pinned"), "free": names("free")}
