"""What efficiency needs of Slurm's accounting and of Prometheus, a day at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from cluster import prometheus
from cluster.prometheus import Server
from cluster.slurm.times import moment
from roles.job_report.files.job_report import efficiency, month, month_ask
from roles.job_report.files.job_report.efficiency import Account, Accounts, GpuHours, Row
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.files.job_report.month import Span
from roles.job_report.files.job_report.sacct import SEPARATOR

COLUMNS = (
    "JobID", "Account", "Start", "End", "ElapsedRaw", "AllocCPUS", "AllocTRES", "TotalCPU",
    "TRESUsageInTot",
)  # fmt: skip
# Of a thousand nodes with eight GPUs a day is 2.3 million values; Prometheus takes 50 million in a
# question (--query.max-samples), and an hour has twelve.
STEP_S = 300.0
LONGEST_S = 86400.0 + 3600  # a day on which clocks are set back

Ask = Callable[[Span], GpuHours]  # raises NotKnown


def read(name: str, ask: Ask) -> Accounts:
    """Raises NotKnown where accounting does not tell of jobs; of GPUs a sentence is kept."""
    now = time.time()
    days = month.days(name, now)
    accounts: dict[str, Account] = {}
    missing: list[str] = []
    for day in days:
        efficiency.count(efficiency.together(rows(day)), day, accounts)
        if missing:
            continue
        try:
            efficiency.measured(ask(day), accounts)
        except NotKnown as error:
            missing.append(f"GPUs' use: {error}")
    if missing:  # a part of a month would look like little use
        for account in accounts.values():
            account.gpu.counted = account.gpu.used = 0.0
    span = Span(days[0].begin, days[-1].end)
    return Accounts(name, span, span.end < now, accounts, tuple(missing))


def rows(day: Span) -> Iterator[Row]:
    """Of jobs that ran on this day, and of their steps."""
    command = (
        *("sacct", "--allusers", "--duplicates", "--noheader", "--parsable2"),
        f"--delimiter={SEPARATOR}",
        f"--format={','.join(COLUMNS)}",
        f"--starttime={moment(day.begin)}",
        f"--endtime={moment(day.end)}",
    )
    for line in month_ask.lines(command, month_ask.DAY_LIMIT_S):
        if not line.strip():
            continue
        cells = line.split(SEPARATOR)
        if len(cells) != len(COLUMNS):
            raise NotKnown(f"sacct says {len(cells)} columns where {len(COLUMNS)} were asked for.")
        yield dict(zip(COLUMNS, cells, strict=True))


# A GPU that two jobs share is in both. How busy an instance of MIG was nobody says, only the board.
_OF_JOB = "max by (hpc_job, account) (slurm_job_gpu_info)"
_GPU = 'max by (hpc_job, node, gpu) (DCGM_FI_DEV_GPU_UTIL{hpc_job!="",GPU_I_ID=""})'
BUSY = f"sum by (account) ({_GPU} * on (hpc_job) group_left (account) {_OF_JOB}) / 100"
COUNTED = f"sum by (account) (({_GPU} >= bool 0) * on (hpc_job) group_left (account) {_OF_JOB})"


def gpu_hours(server: Server, begin: float, end: float) -> GpuHours:
    """By account, measured and busy. Raises NotKnown, and where a day is asked for that is none."""
    if not 0 < end - begin <= LONGEST_S:
        raise NotKnown("GPU-hours are told of a day.")
    over = partial(prometheus.over, server, start=begin, end=end - 1, step_s=STEP_S)
    try:
        counted, busy = over(COUNTED), over(BUSY)
    except prometheus.NoAnswer as error:
        raise NotKnown(str(error)) from None

    def hours(series: list[prometheus.Series]) -> dict[str, float]:
        return {one.labels.get("account", ""): sum(one.values) * STEP_S / 3600 for one in series}

    used = hours(busy)
    return {name: (asked, used.get(name, 0.0)) for name, asked in hours(counted).items()}
