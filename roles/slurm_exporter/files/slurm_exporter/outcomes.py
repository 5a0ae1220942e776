"""What came of the jobs that ended within a day, and of the GPUs that they had.

Accounting is asked once in ten minutes. A job's failure is known when it ends: a day is long enough
for a rate, and short enough for accounting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from cluster.exporter import Family, Labels
from cluster.slurm.job_outcomes import OUTCOMES, outcome
from cluster.slurm.times import moment, parsed
from roles.slurm_exporter.files.slurm_exporter.history.collect import AGAIN_S
from roles.slurm_exporter.files.slurm_exporter.history.lemons import DAY_S
from roles.slurm_exporter.files.slurm_exporter.words import Nonsense, gpus_of_tres

COLUMNS = ("State", "ElapsedRaw", "End", "AllocTRES")
ENDED = tuple(name for name in OUTCOMES if name != "running")

Run = Callable[[Sequence[str]], str]


class Outcomes:
    """An answer, or the lack of one, holds for ten minutes."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._asked = float("-inf")
        self._told: tuple[Family, ...] = ()
        self._error: Exception | None = None

    def collect(self, now: float | None = None) -> tuple[Family, ...]:
        """Raises Failed, also of a round before."""
        now = time.time() if now is None else now
        if not 0 <= now - self._asked < AGAIN_S:
            self._asked, self._error = now, None
            try:
                self._told = tuple(families(self._run(command(now)), now))
            except Exception as error:
                self._error = error
        if self._error is not None:
            raise self._error
        return self._told


def command(now: float) -> tuple[str, ...]:
    return (
        *("sacct", "--allusers", "--duplicates", "--allocations", "--noheader", "--parsable2"),
        *(f"--starttime={moment(now - DAY_S)}", "--endtime=now", f"--format={','.join(COLUMNS)}"),
    )


def families(text: str, now: float) -> Iterator[Family]:
    """Raises Nonsense."""
    jobs: dict[Labels, float] = {(name,): 0.0 for name in ENDED}
    seconds = dict(jobs)
    for state, elapsed, end, tres in _rows(text.splitlines()):
        ended, what = parsed(end), outcome(state)
        # sacct also tells of jobs that only ran within the day.
        if what == "running" or ended is None or ended < now - DAY_S:
            continue
        if not elapsed.isdecimal():
            raise Nonsense(f"a job that ended took {elapsed[:40]!r} seconds")
        jobs[what,] += 1
        seconds[what,] += int(elapsed) * gpus_of_tres(tres)
    yield Family(
        "plumbline_ended_jobs",
        "Jobs that ended within a day, by what came of them",
        ("outcome",),
        jobs,
    )
    yield Family(
        "plumbline_ended_jobs_gpu_seconds",
        "GPU-seconds that jobs had which ended within a day, by what came of them",
        ("outcome",),
        seconds,
    )


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    for line in lines:
        cells = line.split("|")
        if len(cells) != len(COLUMNS):
            raise Nonsense(f"{len(cells)} columns where {len(COLUMNS)} were asked for")
        yield cells
