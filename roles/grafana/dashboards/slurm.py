"""Slurm controller: does Slurm keep up, and what does it make of nodes and jobs?"""

from roles.grafana.dashboards.shared import (
    WORST,
    Column,
    Query,
    above,
    board,
    graph,
    highest,
    number,
    rows,
    section,
    states,
)

WELL = {0: ("failed", "red"), 1: ("well", "green")}
_FREE = (
    'max by (node) (slurm_node_gpus{node=~"$node"})'
    ' - on (node) max by (node) (slurm_node_gpus_alloc{node=~"$node"})'
)
_STRANDED = (
    f"topk({WORST}, {_FREE} > 0 and on (node) max by (node) (slurm_node_cpus_alloc)"
    " >= on (node) max by (node) (slurm_node_cpus_effective))"
)
EXPORTER = "2m"  # sdiag is asked once a minute

_LARGEST = f"topk({WORST}, max by (partition) (slurm_partition_nodes))"


def _of_partitions(metric: str) -> str:
    return f"max by (partition) ({metric}) and on (partition) {_LARGEST}"


THREADS = number(
    "Threads",
    "Requests that slurmctld is serving. It has at most 256 threads.",
    "locale",
    highest("slurm_server_thread_cnt"),
    above(100, 200),
)

MESSAGES_TO_NODES = number(
    "Messages to nodes",
    "Messages that slurmctld has not yet sent to nodes.",
    "locale",
    highest("slurm_agent_queue_size"),
    above(100, 500),
)

MESSAGES_TO_SLURMDBD = number(
    "Messages to slurmdbd",
    "They wait while slurmdbd or its database is down. Beyond MaxDBDMsgs, records are lost.",
    "locale",
    highest("slurm_slurmdbd_queue_size"),
    above(1000, 5000),
)

LAST_SCHEDULING_CYCLE = number(
    "Last scheduling cycle",
    "How long it took.",
    "s",
    "max(slurm_schedule_cycle_last) / 1e6",
    above(1, 5),
)

LAST_BACKFILL_CYCLE = number(
    "Last backfill cycle",
    "How long it took.",
    "s",
    "max(slurm_bf_cycle_last) / 1e6",
    above(30, 120),
)

ANSWERS_ARE_OLD_BY = number(
    "Answers are old by",
    "Time since the exporter asked Slurm last.",
    "s",
    'time() - max(plumbline_exporter_last_run_timestamp_seconds{exporter="slurm"})',
    above(150, 300),
)

NODES_BY_STATE = graph(
    "Nodes by state",
    "Slurm's states. A node that is drained and down counts in both.",
    "short",
    Query(highest("slurm_nodes_alloc"), "allocated"),
    Query(highest("slurm_nodes_mixed"), "mixed"),
    Query(highest("slurm_nodes_idle"), "idle"),
    Query(highest("slurm_nodes_draining"), "draining"),
    Query(highest("slurm_nodes_drained"), "drained"),
    Query(highest("slurm_nodes_down"), "down"),
    Query(highest("slurm_nodes_noresp"), "not responding"),
)

NOT_ENDED_WELL = (
    Query(highest("slurm_jobs_failed"), "failed"),
    Query(highest("slurm_jobs_timeout"), "timed out"),
    Query(highest("slurm_jobs_outofmemory"), "out of memory"),
    Query(highest("slurm_jobs_node_failed"), "ended by a node's failure"),
)

JOBS_BY_STATE = graph(
    "Jobs by state",
    "Ended jobs count for MinJobAge, five minutes by default.",
    "short",
    Query(highest("slurm_jobs_running"), "running"),
    Query(highest("slurm_jobs_pending"), "pending"),
    Query(highest("slurm_jobs_hold"), "held"),
    Query(highest("slurm_jobs_completing"), "completing"),
    Query(highest("slurm_jobs_completed"), "completed"),
    *NOT_ENDED_WELL,
)

PARTITIONS = rows(
    "Partitions",
    f"A node counts in each of its partitions; the {WORST} with the most nodes.",
    {"partition": "Partition"},
    Column(_LARGEST, "Nodes"),
    Column(_of_partitions("slurm_partition_cpus"), "CPUs"),
    Column(_of_partitions("slurm_partition_nodes_cpus_alloc"), "CPUs allocated"),
    Column(_of_partitions("slurm_partition_gpus"), "GPUs"),
    Column(_of_partitions("slurm_partition_gpus_alloc"), "GPUs allocated"),
    Column(_of_partitions("slurm_partition_jobs_running"), "Running"),
    Column(_of_partitions("slurm_partition_jobs_pending"), "Waiting"),
)

NODES = rows(
    "GPUs that no job can have",
    f"Nodes with free GPUs and without a free CPU; the {WORST} with the most such GPUs.",
    {"node": "Node"},
    Column(_STRANDED, "GPUs free"),
    Column(f"max by (node) (slurm_node_gpus) and on (node) {_STRANDED}", "GPUs"),
    Column(f"max by (node) (slurm_node_cpus_alloc) and on (node) {_STRANDED}", "CPUs allocated"),
    Column(f"max by (node) (slurm_node_cpus_effective) and on (node) {_STRANDED}", "CPUs"),
    none="Wherever GPUs are free, CPUs are.",
    first="GPUs free",
)

CYCLES = graph(
    "Cycles",
    "How long the last one took.",
    "s",
    Query("max(slurm_schedule_cycle_last) / 1e6", "main"),
    Query("max(slurm_bf_cycle_last) / 1e6", "backfill"),
)

CYCLES_PER_MINUTE = graph(
    "Cycles per minute",
    "A scheduler without cycles is stuck.",
    "short",
    Query("max(rate(slurm_schedule_cycle_cnt[$__rate_interval])) * 60", "main"),
    Query("max(rate(slurm_bf_cycle_cnt[$__rate_interval])) * 60", "backfill"),
    every=EXPORTER,
)

JOBS_LOOKED_AT = graph(
    "Jobs looked at",
    "By the last cycle of backfill, and how many there were.",
    "short",
    Query(highest("slurm_bf_last_depth"), "looked at"),
    Query(highest("slurm_bf_last_depth_try"), "tried"),
    Query(highest("slurm_bf_queue_len"), "in the queue"),
)

THREADS_AND_QUEUES = graph(
    "Threads and queues",
    "Queues of slurmctld.",
    "short",
    Query(highest("slurm_server_thread_cnt"), "threads"),
    Query(highest("slurm_agent_queue_size"), "messages to nodes"),
    Query(highest("slurm_slurmdbd_queue_size"), "messages to slurmdbd"),
)

REQUESTS_BY_KIND = graph(
    "Requests by kind",
    "The ten most frequent kinds.",
    "reqps",
    Query("topk(10, max by (rpc) (rate(slurm_rpc_count[$__rate_interval])))", "{{rpc}}"),
    every=EXPORTER,
)

TIME_SPENT_ON_REQUESTS = graph(
    "Time spent on requests",
    "The ten most expensive kinds, in seconds of work per second.",
    "short",
    Query(
        "topk(10, max by (rpc) (rate(slurm_rpc_seconds_total[$__rate_interval])))",
        "{{rpc}}",
    ),
    every=EXPORTER,
)

FAIR_SHARE = rows(
    "Fair share",
    "Fair-share factor of a user in an account: 1 means unused, 0 heavily overused;"
    f" the {WORST} lowest.",
    {"account": "Account", "user": "User"},
    Column(
        f"bottomk({WORST}, max by (account, user) (slurm_account_fairshare))",
        "Factor",
        "percentunit",
    ),
)

QUESTIONS_TO_SLURM = states(
    "Questions to Slurm",
    "Whether the exporter got an answer. A failed collector has no metrics.",
    Query(
        'min by (collector) (plumbline_exporter_collector_success{exporter="slurm"})',
        "{{collector}}",
    ),
    WELL,
)

WHAT_THE_QUESTIONS_TAKE = graph(
    "What the questions take",
    "Time for each.",
    "s",
    Query(
        'max by (collector) (plumbline_exporter_collector_duration_seconds{exporter="slurm"})',
        "{{collector}}",
    ),
)


BOARD = board(
    "slurm",
    "Slurm controller",
    "Does Slurm keep up, and in which state are nodes and jobs?",
    section(
        "At a glance",
        [
            THREADS,
            MESSAGES_TO_NODES,
            MESSAGES_TO_SLURMDBD,
            LAST_SCHEDULING_CYCLE,
            LAST_BACKFILL_CYCLE,
            ANSWERS_ARE_OLD_BY,
        ],
    ),
    section("Nodes and jobs", [NODES_BY_STATE, JOBS_BY_STATE], [PARTITIONS, NODES]),
    section("Scheduler", [CYCLES, CYCLES_PER_MINUTE, JOBS_LOOKED_AT]),
    section("Requests", [THREADS_AND_QUEUES, REQUESTS_BY_KIND, TIME_SPENT_ON_REQUESTS]),
    section(
        "Accounting, and what is asked", [FAIR_SHARE, QUESTIONS_TO_SLURM, WHAT_THE_QUESTIONS_TAKE]
    ),
)
