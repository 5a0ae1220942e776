"""Licences, as slurm.conf has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


def licenses(declared: Mapping[str, int]) -> str:
    """`matlab:10,ansys:40`; each of them is counted by slurmctld alone."""
    return ",".join(f"{name}:{count}" for name, count in declared.items())


def license_problems(declared: Any) -> list[str]:
    problems = []
    for name, count in (declared or {}).items():
        if not NAME.fullmatch(str(name)):
            problems.append(
                f"slurm_licenses has the name {name!r}; take letters, digits, dots and dashes."
            )
        elif isinstance(count, bool) or not isinstance(count, int) or count < 1:
            problems.append(
                f"slurm_licenses.{name} is {count!r}; set it to how many there are, 1 or more."
            )
    return problems
