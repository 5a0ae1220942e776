"""When a notebook ends: a while after its last use, and at the time limit of its job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

WARNING_SECONDS = 600.0


@dataclass(frozen=True)
class Ends:
    """Seconds since the epoch; None where there is no such end."""

    idle: float | None
    limit: float | None

    def warnings(self, now: float) -> list[str]:
        """Which ends are near: "idle", "limit"."""
        ends = {"idle": self.idle, "limit": self.limit}
        return [
            name for name, end in ends.items() if end is not None and end - now <= WARNING_SECONDS
        ]


def last_use(kernels: Iterable[Mapping[str, Any]], others: Iterable[float], now: float) -> float:
    """When it was used last: by code that still runs, by a kernel, or at one of the other times.

    An open page asks the server every few seconds, so requests alone are no use.
    """
    times = [*others]
    for kernel in kernels:
        if kernel.get("execution_state") == "busy":
            return now
        times.append(datetime.fromisoformat(str(kernel["last_activity"])).timestamp())
    return max(times)


def ends(used: float, idle_minutes: int, job_end: str) -> Ends:
    """`job_end`: what Slurm puts into SLURM_JOB_END_TIME, from 22.05 on."""
    return Ends(
        used + idle_minutes * 60 if idle_minutes else None,
        float(job_end) if job_end.isdigit() else None,
    )
