"""Users: who has GPUs, and what do they make of them?"""

from roles.grafana.dashboards.shared import (
    FEW,
    WORST,
    Column,
    Query,
    board,
    choice,
    graph,
    number,
    rows,
    section,
    share,
    worst,
)

_OF_USER = 'user=~"$user",node=~"$node"'
# Each job once, with its user.
_JOBS = f"max by (hpc_job, user) (slurm_job_gpu_info{{{_OF_USER}}})"
_OF_JOB = "max by (hpc_job) (slurm_job_gpus)"
_BUSY_OF_JOB = "max by (hpc_job) (job:dcgm_gpu_util:avg)"
_GPUS = f"sum by (user) ({_JOBS} * on (hpc_job) group_left () {_OF_JOB})"
# Of jobs that an exporter sees: their GPUs, and percents of these.
_SEEN = f"sum by (user) ({_JOBS} * on (hpc_job) group_left () ({_OF_JOB} and {_BUSY_OF_JOB}))"
_USED = f"sum by (user) ({_JOBS} * on (hpc_job) group_left () ({_OF_JOB} * {_BUSY_OF_JOB}))"
_BUSY = f"{_USED} / {_SEEN}"
# Two that are half busy are one that does nothing.
_IDLE = f"{_SEEN} - {_USED} / 100"
_MOST_IDLE = f"topk({WORST}, {_IDLE})"
_LARGEST = f"topk({WORST}, {_GPUS})"

JOBS = number(
    "Jobs",
    "Running jobs with GPUs.",
    "locale",
    f"count({_JOBS}) or vector(0)",
)

GPUS = number("GPUs", "GPUs that these jobs have.", "locale", f"sum({_GPUS}) or vector(0)")

IDLE = number(
    "GPUs that do nothing",
    "What of them ran no kernel: two GPUs that are half busy are one that does nothing.",
    "locale",
    f"sum({_IDLE})",
)

BUSY = share(
    "Busy",
    "The mean over the GPUs of the time in which a kernel ran.",
    f"sum({_USED}) / sum({_SEEN}) / 100",
)

USERS = rows(
    "Users",
    f"The {WORST} users with the most GPUs.",
    {"user": "User"},
    Column(_LARGEST, "GPUs"),
    Column(f"count by (user) ({_JOBS}) and on (user) {_LARGEST}", "Jobs"),
    Column(f"{_BUSY} and on (user) {_LARGEST}", "Busy", "percent"),
    none="Nobody has a GPU.",
    first="GPUs",
)

USERS_WHOSE_GPUS_DO_NOTHING = rows(
    "Users whose GPUs do nothing",
    f"The {WORST} users with the most GPUs that do nothing, and how busy all of theirs are.",
    {"user": "User"},
    Column(_MOST_IDLE, "GPUs that do nothing"),
    Column(f"{_BUSY} and on (user) {_MOST_IDLE}", "Busy", "percent"),
    first="GPUs that do nothing",
)

LEAST_BUSY_JOBS = rows(
    "Least busy jobs",
    f"The {WORST} jobs whose GPUs are least busy.",
    {"hpc_job": "Job", "user": "User"},
    Column(
        f"bottomk({WORST}, max by (hpc_job, user)"
        f" ({_JOBS} * on (hpc_job) group_left () {_BUSY_OF_JOB}))",
        "Busy",
        "percent",
    ),
)

JOBS_TABLE = rows(
    "Jobs with GPUs",
    f"The {WORST} with the most nodes.",
    {"hpc_job": "Job", "user": "User", "account": "Account", "partition": "Partition"},
    Column(
        f"topk({WORST}, count by (hpc_job, user, account, partition)"
        " (max by (hpc_job, user, account, partition, node)"
        f" (slurm_job_gpu_info{{{_OF_USER}}})))",
        "Nodes",
    ),
    none="Nobody has a GPU.",
)

GPUS_BY_USER = graph(
    "GPUs, by user",
    f"The {FEW} users with the most GPUs at the end.",
    "short",
    Query(worst(_GPUS, FEW), "{{user}}"),
    stacked=True,
)

BUSY_BY_USER = graph(
    "Busy, by user",
    f"The mean over a user's GPUs; the {FEW} users whose GPUs are least busy at the end.",
    "percent",
    Query(worst(_BUSY, FEW, least=True), "{{user}}"),
    top=100,
)

FAIR_SHARE = rows(
    "Fair share",
    f"Fair-share factor in each account: 1 means unused, 0 heavily overused; the {WORST} lowest.",
    {"account": "Account", "user": "User"},
    Column(
        f'bottomk({WORST}, max by (account, user) (slurm_account_fairshare{{user=~"$user"}}))',
        "Factor",
        "percentunit",
    ),
)

BOARD = board(
    "user",
    "Users",
    "Who has GPUs, and what do they make of them? Choose a user, or look at all.",
    section("At a glance", [JOBS, GPUS, IDLE, BUSY]),
    section("Who", [USERS, USERS_WHOSE_GPUS_DO_NOTHING], [GPUS_BY_USER, BUSY_BY_USER]),
    section("Jobs", [LEAST_BUSY_JOBS, JOBS_TABLE, FAIR_SHARE]),
    variables=[choice("user", "User", "slurm_job_gpu_info", everything=".+")],
    since="now-1h",
)
