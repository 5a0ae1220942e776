"""Which packages a node's NVLink fabric needs. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Table = Sequence[Mapping[str, Any]]

# Names with a branch, without one, and of NVIDIA's metapackages that depend on them.
BRANCH = re.compile(r"-\d{3}$")
META = "cuda-drivers-"

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


def replaced(installed: Iterable[str], name: str) -> list[str]:
    """Installed packages that a package takes the place of: what another branch calls it.

    `nvidia-fabricmanager` of 580 stands where `nvidia-fabricmanager-570` stood, which conflicts
    with it, and the metapackage `cuda-drivers-fabricmanager-570` asks for that one:
    https://github.com/NVIDIA/apt-packaging-fabric-manager (debian/templates/control.in, README.md).
    """
    base, branch = _parts(name)
    meta = META + base.removeprefix("nvidia-")
    return sorted(
        other
        for other in installed
        if other == meta or (_parts(other)[0] in (base, meta) and _parts(other)[1] != branch)
    )


def _parts(name: str) -> tuple[str, str]:
    """A package's name without its branch, and that branch, such as `-570`."""
    base = BRANCH.sub("", name)
    return base, name.removeprefix(base)
