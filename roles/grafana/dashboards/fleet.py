"""Fleet: over days, how much of the cluster could be used, was used, and what was lost to what?

What is asked over days is recorded once a minute (rules/boards.yml of the role prometheus): the sum
of a series over time is so many minutes, however much of the time Prometheus knows.
"""

from roles.grafana.dashboards.shared import (
    WORST,
    Column,
    Query,
    bars,
    board,
    graph,
    number,
    rows,
    section,
    share,
    worst,
)
from roles.grafana.dashboards.slurm import NOT_ENDED_WELL

_MINUTES = 60  # an hour's samples
_SERVES = 'node:slurm_node_serves:bool{node=~"$node"}'
_WORKS = 'node:slurm_node_works:bool{node=~"$node"}'
_NODE_HOURS = f"sum(sum_over_time({_WORKS}[$__range])) / {_MINUTES}"
_FAILURES = f"resets({_WORKS}[$__range])"
_OUT = f"(1 - avg_over_time({_SERVES}[$__range]))"
_MOST_OUT = f"topk({WORST}, max by (node) ({_OUT}) > 0)"


def _hours(metric: str, by: str) -> str:
    return f"max by ({by}) (sum_over_time({metric}[$__range])) / {_MINUTES}"


_USES = _hours("cluster:slurm_gpus:use", "use")
_GIVEN = 'max(sum_over_time(cluster:slurm_gpus:use{use="given"}[$__range]))'
_ALL = "sum(max by (use) (sum_over_time(cluster:slurm_gpus:use[$__range])))"
_BUSY = "max(sum_over_time(cluster:slurm_gpus:busy[$__range]))"
_ACCOUNTS_GIVEN = _hours("account:slurm_gpus:given", "account")
_ACCOUNTS = f"topk({WORST}, {_ACCOUNTS_GIVEN})"

AVAILABILITY = share(
    "Availability",
    "In the displayed time: the share in which nodes were neither drained nor down, planned or"
    " not.",
    f"avg(avg_over_time({_SERVES}[$__range]))",
)

GIVEN = share(
    "GPUs given",
    "In the displayed time: GPU-hours that jobs had, as a share of all.",
    f"{_GIVEN} / ({_ALL} > 0) or 0 * {_ALL}",
)

GOODPUT = share(
    "GPUs used",
    "In the displayed time: GPU-hours in which a job's kernel ran, as a share of all.",
    f"{_BUSY} / ({_ALL} > 0)",
)

INTERRUPTIONS = number(
    "Failures of nodes",
    "How often a node went down in the displayed time without being maintained or rebooted.",
    "locale",
    f"sum({_FAILURES})",
)

TIME_BETWEEN_FAILURES = number(
    "Time between failures",
    "Time that nodes worked, divided by their failures. Without any, all of that time.",
    "s",
    f"{_NODE_HOURS} * 3600 / clamp_min(sum({_FAILURES}), 1)",
)

NODES_THAT_FAILED = number(
    "Nodes that failed",
    "Nodes that went down at least once in the displayed time.",
    "locale",
    f"count(max by (node) ({_FAILURES}) > 0) or 0 * count({_WORKS})",
)

USE_OF_THE_GPUS = graph(
    "Use of the GPUs",
    "Each GPU has one use: given to a job, idle, reserved, or lost because its node is drained or"
    " down.",
    "short",
    Query("max by (use) (cluster:slurm_gpus:use)", "{{use}}"),
    stacked=True,
)

GPU_HOURS = bars(
    "GPU-hours",
    "In the displayed time, by use. What jobs had and did not use is part of what was given.",
    "short",
    Query(_USES, "{{use}}"),
    Query(f"{_BUSY} / {_MINUTES}", "given, used"),
    Query(f"({_GIVEN} - on () {_BUSY}) / {_MINUTES}", "given, not used"),
)

ACCOUNTS = rows(
    "Accounts",
    f"GPU-hours in the displayed time, of the {WORST} accounts with the most.",
    {"account": "Account"},
    Column(_ACCOUNTS, "Given"),
    Column(f"{_hours('account:slurm_gpus:busy', 'account')} and on (account) {_ACCOUNTS}", "Used"),
    Column(
        f"max by (account) (1 - sum_over_time(account:slurm_gpus:busy[$__range])"
        " / sum_over_time(account:slurm_gpus:given[$__range]))"
        f" and on (account) {_ACCOUNTS}",
        "Not used",
        "percentunit",
    ),
    none="No account had a GPU.",
    first="Given",
)

JOBS_THAT_DID_NOT_END_WELL = graph(
    "Jobs that did not end well",
    "A job counts for MinJobAge, five minutes by default.",
    "short",
    *NOT_ENDED_WELL,
)

NODES_MOST_OUT_OF_SERVICE = rows(
    "Nodes most out of service",
    f"In the displayed time: the {WORST} nodes that were drained or down longest.",
    {"node": "Node"},
    Column(_MOST_OUT, "Out of service", "percentunit"),
    Column(f"max by (node) ({_FAILURES}) and on (node) {_MOST_OUT}", "Failures"),
    none="All nodes were in service.",
    first="Out of service",
)

NODES_THAT_FAILED_MOST = rows(
    "Nodes that failed most often",
    f"In the displayed time: the {WORST} nodes that went down most often without being maintained.",
    {"node": "Node"},
    Column(f"topk({WORST}, max by (node) ({_FAILURES}) > 0)", "Failures"),
    none="No node failed.",
)

NODES_OUT_OF_SERVICE = graph(
    "Nodes out of service",
    "Nodes that are drained or down, for whatever reason.",
    "short",
    Query(f"count({_SERVES} == 0) or 0 * count({_SERVES})", "nodes"),
)

GPUS_BY_ACCOUNT = graph(
    "GPUs, by account",
    f"GPUs that jobs have, of the {WORST} accounts with the most at the end.",
    "short",
    Query(worst("max by (account) (account:slurm_gpus:given)"), "{{account}}"),
    stacked=True,
)

WHAT_CAME_OF_JOBS = graph(
    "GPU-hours of jobs that ended",
    "At each moment of the day before it, by what came of the jobs: stopped is cancelled or at a"
    " time limit, lost is ended by a node's failure or preempted.",
    "short",
    Query("max by (outcome) (plumbline_ended_jobs_gpu_seconds) / 3600", "{{outcome}}"),
    stacked=True,
)

BOARD = board(
    "fleet",
    "Fleet",
    "How much of the cluster could be used, was used, and what was lost to what? Choose days.",
    section(
        "In the displayed time",
        [AVAILABILITY, GIVEN, GOODPUT],
        [INTERRUPTIONS, TIME_BETWEEN_FAILURES, NODES_THAT_FAILED],
    ),
    section("What was lost", [NODES_MOST_OUT_OF_SERVICE, NODES_THAT_FAILED_MOST]),
    section(
        "GPU-hours", [USE_OF_THE_GPUS, GPU_HOURS], [ACCOUNTS, GPUS_BY_ACCOUNT], [WHAT_CAME_OF_JOBS]
    ),
    section("Nodes and jobs", [NODES_OUT_OF_SERVICE, JOBS_THAT_DID_NOT_END_WELL]),
    since="now-7d",
)
