"""The jobs that users have while something breaks, and what accounting must say of them afterwards.

One job on each compute node runs all the while, an array waits behind them, and another is
submitted while the fault is there, by a user who tries until it is accepted. Each job starts a
step, so a start that fails is seen.

A fault begins when slurmctld has written these jobs into its state. It does so at most five seconds
after it accepted them, and a slurmctld that is killed before loses them, whoever set it up
(docs/operate/ha.md, "After a crash").
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.patience import until
from tests.reliability.cluster import COMPUTE, CONTROLLER, LOGIN, Cluster

LONG_SECONDS = 60
QUEUED, LATE = 15, 5
FINAL_SECONDS = 600
STATE = "/var/lib/slurm/slurmctld/job_state"


@dataclass(frozen=True)
class Row:
    """A job or a step as sacct has it."""

    job: str
    state: str


@dataclass(frozen=True)
class Load:
    """Jobs that Slurm accepted: by node what runs there, and the number of an array's first."""

    name: str
    long: Mapping[str, str]
    queue: str

    @property
    def late_name(self) -> str:
        return f"{self.name}-late"


def begin(cluster: Cluster) -> Load:
    """Submits, and waits until each node has its long job."""
    name = f"load-{time.time_ns() // 1_000_000}"
    long = {
        node: accepted(
            cluster, f"--job-name={name} -w {node} -n1 --time=10", f"srun sleep {LONG_SECONDS}"
        )
        for node in COMPUTE
    }
    queue = accepted(cluster, f"--job-name={name} --array=1-{QUEUED} -n1 --time=10", "srun sleep 2")
    until(lambda: running(cluster, name) >= len(COMPUTE), 120)
    accepted_at = cluster.on(CONTROLLER, "date +%s.%N")
    newer = f"[ $(stat --format=%.9Y {STATE}) \\> {accepted_at} ]"
    until(lambda: cluster.tried(CONTROLLER, newer).returncode == 0, 60)
    return Load(name, long, queue)


def accepted(cluster: Cluster, options: str, script: str) -> str:
    shown = cluster.asks(f"sbatch --parsable --output=/dev/null {options} --wrap '{script}'")
    assert shown.isdecimal(), f"sbatch {options} was not accepted: {shown!r}"
    return shown


def running(cluster: Cluster, name: str) -> int:
    return cluster.asks(f"squeue -h -n {name} -t R -o %i").count("\n") + 1


def submit_late(cluster: Cluster, load: Load) -> None:
    """A user's loop on the login node that goes on until the array is accepted."""
    words = f"sbatch --parsable --output=/dev/null --job-name={load.late_name} --array=1-{LATE}"
    try_it = f"timeout 20 {words} -n1 --time=10 --wrap 'srun sleep 1' >{load.late_name}"
    loop = f"until {try_it}; do sleep 1; done"
    cluster.asks(f'nohup bash -c "{loop}" >/dev/null 2>&1 </dev/null &')


@dataclass(frozen=True)
class Outcome:
    """What accounting says; `again` counts jobs that began a second time."""

    jobs: int
    again: int
    problems: Sequence[str]


def end(cluster: Cluster, load: Load, may_begin_again: bool) -> Outcome:
    """Waits until all has run and is in accounting, and compares it with what was accepted."""
    until(lambda: cluster.asks(f"cat {load.late_name}").isdecimal(), FINAL_SECONDS)
    late = cluster.asks(f"cat {load.late_name}")
    expected = {
        *load.long.values(),
        *(f"{load.queue}_{index}" for index in range(1, QUEUED + 1)),
        *(f"{late}_{index}" for index in range(1, LATE + 1)),
    }

    def final() -> list[Row]:
        names = f"--name={load.name},{load.late_name}"
        asked = cluster.tried(LOGIN, f"squeue -h {names}")
        if asked.returncode or asked.stdout.strip():
            return []
        rows = accounted(cluster, load, "-X")
        settled = {row.state for row in rows} - {"PENDING", "RUNNING", "REQUEUED", "COMPLETING"}
        return rows if len(rows) >= len(expected) and settled == {row.state for row in rows} else []

    rows = until(final, FINAL_SECONDS)
    every = accounted(cluster, load, "-X --duplicates")
    steps = accounted(cluster, load, "")
    again = len(every) - len(rows)
    return Outcome(
        len(rows), again, problems(expected, rows, steps, 0 if may_begin_again else again)
    )


def accounted(cluster: Cluster, load: Load, options: str) -> list[Row]:
    """Of all jobs of a load, each once unless `options` ask for more."""
    names = f"--name={load.name},{load.late_name}"
    shown = cluster.tried(LOGIN, f"sacct -a -n -P -S now-1day {names} {options} -o jobid,state")
    if shown.returncode:
        return []
    return [Row(*line.split("|")) for line in shown.stdout.splitlines()]


def problems(
    expected: set[str], rows: Sequence[Row], steps: Sequence[Row], again: int
) -> list[str]:
    """Sentences about jobs that are missing, counted twice, not completed, or without their step.

    `again` jobs began twice and should not have.
    """
    said = []
    times = Counter(row.job for row in rows)
    if missing := sorted(expected - times.keys()):
        said.append(f"accounting does not have {', '.join(missing)}")
    if more := sorted(times.keys() - expected):
        said.append(f"accounting has {', '.join(more)}, which nobody submitted")
    said += [f"accounting has {job} {count} times" for job, count in times.items() if count > 1]
    said += [f"{row.job} is {row.state}" for row in rows if row.state != "COMPLETED"]
    completed = Counter(row.job for row in steps if row.state == "COMPLETED")
    said += [
        f"the step of {job} is not in accounting as completed"
        for job in sorted(expected & times.keys())
        if not completed[f"{job}.0"]
    ]
    if again:
        said.append(f"{again} jobs began twice, although nothing that knew of them was lost")
    return said
