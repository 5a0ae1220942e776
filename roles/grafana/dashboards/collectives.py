"""Collectives of jobs: which job hangs, which rank do the others wait for, how fast is the network?

Of jobs that have NCCL's inspector, and hangs of all that are watched (compute_nccl_inspector).
"""

from roles.grafana.dashboards.shared import (
    WORST,
    Column,
    Query,
    above,
    board,
    choice,
    graph,
    number,
    rows,
    section,
    worst,
)

_OF = 'hpc_job=~"$hpc_job",node=~"$node"'
_EACH = "hpc_job, comm, collective, rank, node"
_SET = "hpc_job, comm, collective"


def _rate(metric: str, by: str = _EACH) -> str:
    return f"sum by ({by}) (rate(nccl_inspector_{metric}_total{{{_OF}}}[$__rate_interval]))"


def _mean(by: str = _EACH) -> str:
    """Seconds of one collective."""
    return f"({_rate('collective_seconds', by)} / ({_rate('collectives', by)} > 0))"


def _bandwidth(by: str) -> str:
    """On the bus, as nccl-tests tell it; the mean over the time that the collectives took."""
    return f"({_rate('bus_bytes', by)} / ({_rate('collective_seconds', by)} > 0))"


# 1 where a rank takes as long as most of its communicator; the others wait for one far below.
_RELATIVE = f"{_mean()} / on ({_SET}) group_left () quantile by ({_SET}) (0.5, {_mean()})"

WATCHED = number(
    "Jobs watched",
    "Jobs whose ranks tell how far they are.",
    "short",
    f"count(count by (hpc_job) (nccl_job_watched{{{_OF}}} == 1)) or vector(0)",
)

HANGING = number(
    "Jobs that hang",
    "No rank goes on, and a rank is silent or behind.",
    "short",
    f"sum(max by (hpc_job) (nccl_job_hanging{{{_OF}}})) or vector(0)",
    above(1),
)

INSPECTED = number(
    "Jobs inspected",
    "Jobs whose collectives NCCL's inspector records.",
    "short",
    f"count(count by (hpc_job) (nccl_inspector_collectives_total{{{_OF}}})) or vector(0)",
)

LOST = number(
    "Collectives not recorded",
    "For which the inspector had no room, in the displayed time.",
    "short",
    f"sum(increase(nccl_inspector_lost_total{{{_OF}}}[$__range])) or vector(0)",
)

HANGS = rows(
    "Ranks that jobs hang on",
    "Silent ranks, and ranks that launched another number of collectives than the others;"
    f" {WORST} of them.",
    {"hpc_job": "Job", "rank": "Rank", "place": "Where", "node": "First node"},
    Column(f"topk({WORST}, max by (hpc_job, rank, place, node) (nccl_job_odd_rank_info{{{_OF}}}))"),
    none="No job hangs.",
)

WITHOUT_PROGRESS = rows(
    f"The {WORST} longest without progress",
    "Since a rank of the job last launched a collective. Long times are no fault by themselves.",
    {"hpc_job": "Job", "node": "First node"},
    Column(
        f"topk({WORST}, max by (hpc_job, node) (nccl_job_seconds_without_progress{{{_OF}}}))",
        "For",
        "s",
    ),
)

STRAGGLERS = rows(
    f"The {WORST} ranks that are waited for most",
    "Time of a collective on this rank, as a share of the median of its communicator. Who comes "
    "last has the shortest time: below 0.7 the others wait for this rank.",
    {"hpc_job": "Job", "rank": "Rank", "node": "Node", "collective": "Collective", "comm": "Of"},
    Column(
        f"bottomk({WORST}, min by (hpc_job, rank, node, collective, comm) ({_RELATIVE}))",
        "Share of the median",
        "percentunit",
    ),
)

BANDWIDTH = graph(
    "Bandwidth on the bus, by job",
    "The mean over the ranks and collectives of a job, of the twenty with the least.",
    "Bps",
    Query(
        worst(_bandwidth("hpc_job, collective"), least=True),
        "{{hpc_job}} {{collective}}",
    ),
)

LATENCY = graph(
    "Time of a collective, by job",
    "The mean over the ranks of a job, of the twenty with the longest.",
    "s",
    Query(worst(_mean("hpc_job, collective")), "{{hpc_job}} {{collective}}"),
)

SHARE = graph(
    "Time in collectives, by job",
    "The mean over the ranks of the share of the time that is spent in recorded collectives. "
    "Several at once count several times.",
    "percentunit",
    Query(
        worst(
            f"sum by (hpc_job) ({_rate('collective_seconds', 'hpc_job')})"
            " / count by (hpc_job) (count by (hpc_job, rank, node)"
            f" (nccl_inspector_collectives_total{{{_OF}}}))"
        ),
        "{{hpc_job}}",
    ),
)

BY_RANK = graph(
    "Time of a collective, by rank",
    "Of the twenty ranks with the shortest, for whom the others wait; choose a job above.",
    "s",
    Query(worst(_mean(), least=True), "{{hpc_job}} {{collective}} {{rank}} {{node}}"),
)

BOARD = board(
    "collectives",
    "Collectives of jobs",
    "Which jobs hang, which rank is waited for, and how fast are the collectives?",
    section(
        "At a glance",
        [HANGING, WATCHED, INSPECTED, LOST],
        [HANGS, WITHOUT_PROGRESS],
        [STRAGGLERS],
    ),
    section("Collectives", [BANDWIDTH, LATENCY], [SHARE, BY_RANK]),
    variables=[choice("hpc_job", "Job", "nccl_job_watched", everything=".+")],
    since="now-1h",
)
