"""Cluster overview: is the cluster well, and is it used?"""

from roles.grafana.dashboards.shared import (
    Column,
    Query,
    above,
    board,
    graded,
    graph,
    highest,
    number,
    rows,
    section,
    share,
    states,
)

# The worst of what a node is.
STATES = {
    "idle": 1,
    "mixed": 2,
    "allocated": 2,
    "planned": 2,
    "reserved": 3,
    "maintenance": 3,
    "drain": 4,
    "down": 5,
    "error": 5,
    "fail": 5,
    "not_responding": 5,
}
GRADES = {
    1: ("idle", "blue"),
    2: ("in use", "green"),
    3: ("reserved", "purple"),
    4: ("drained", "orange"),
    5: ("down", "red"),
}
_OUT = 'slurm_node_state{state=~"down|error|fail|drain|not_responding",node=~"$node"}'

NODES = number("Nodes", "Nodes that Slurm knows.", "short", highest("slurm_nodes"))

NODES_OUT_OF_SERVICE = number(
    "Nodes out of service",
    "Nodes that take no jobs: down, failed, drained, or not responding.",
    "short",
    f"count(max by (node) ({_OUT}) == 1) or vector(0)",
    above(1),
)

JOBS_RUNNING = number("Jobs running", "Jobs that run.", "short", highest("slurm_jobs_running"))

JOBS_WAITING = number(
    "Jobs waiting",
    "Waiting jobs, except those that are held.",
    "short",
    "max(slurm_jobs_pending - slurm_jobs_hold)",
)

ALERTS = number(
    "Alerts",
    "Alerts that fire.",
    "short",
    'count(ALERTS{alertstate="firing",severity!="none"}) or vector(0)',
    above(1),
)

HOSTS_NOT_ANSWERING = number(
    "Hosts not answering",
    "Hosts that Prometheus cannot scrape.",
    "short",
    'count(up{job="node",node=~"$node"} == 0) or vector(0)',
    above(1),
)

CPUS_ALLOCATED = share(
    "CPUs allocated",
    "CPUs that jobs have, as a share of the CPUs that Slurm can give to jobs.",
    "sum(max by (node) (slurm_node_cpus_alloc)) / sum(max by (node) (slurm_node_cpus_effective))",
)

GPUS_ALLOCATED = share(
    "GPUs allocated",
    "GPUs that jobs have, as a share of the GPUs that Slurm knows.",
    "sum(max by (node) (slurm_node_gpus_alloc))"
    " / sum(max by (node) (slurm_node_gpus)) > 0"
    " or 0 * sum(slurm_node_gpus)",
)

CPU_BUSY = share(
    "CPU busy",
    "How busy the nodes' CPUs are, with or without jobs.",
    '1 - avg(rate(node_cpu_seconds_total{mode="idle",node=~"$node"}[$__rate_interval]))',
)

MEMORY_USED = share(
    "Memory used",
    "Memory of the nodes that is not available to programs.",
    '1 - sum(node_memory_MemAvailable_bytes{node=~"$node"})'
    ' / sum(node_memory_MemTotal_bytes{node=~"$node"})',
    above(0.8, 0.95),
)

ALERTS_THAT_FIRE = rows(
    "Alerts that fire",
    "Watchdog always does: it shows that alerts are evaluated. What the others mean"
    " and what to do is in docs/runbooks.",
    {"severity": "Severity", "alertname": "Alert", "node": "Node"},
    Column('max by (severity, alertname, node) (ALERTS{alertstate="firing",node=~"$node|"})'),
)

NODES_OUT_OF_SERVICE_AND_WHY = rows(
    "Nodes out of service, and why",
    "Slurm's reasons, and who set them.",
    {"node": "Node", "reason": "Reason", "user": "By"},
    Column('max by (node, reason, user) (slurm_node_reason_info{node=~"$node"})'),
)

STATE_OF_EACH_NODE = states(
    "State of each node",
    "Slurm's state of each node. If a node has several states, the worst one is shown.",
    Query(
        "max by (node) (" + graded("slurm_node_state", "state", STATES, 'node=~"$node"') + ")",
        "{{node}}",
    ),
    GRADES,
)

JOBS = graph(
    "Jobs",
    "Running and waiting jobs.",
    "short",
    Query(highest("slurm_jobs_running"), "running"),
    Query("max(slurm_jobs_pending - slurm_jobs_hold)", "waiting"),
    Query(highest("slurm_jobs_hold"), "held"),
)

WHY_JOBS_WAIT = graph(
    "Why jobs wait",
    "Slurm's reasons. Each task of an array counts.",
    "short",
    Query("max by (reason) (slurm_jobs_pending_reason)", "{{reason}}"),
    stacked=True,
)

GPUS_ALLOCATED_BY_PARTITION = graph(
    "GPUs allocated by partition",
    "A node counts in each of its partitions.",
    "short",
    Query("max by (partition) (slurm_partition_gpus_alloc)", "{{partition}}"),
)

POWER_OF_THE_GPUS = graph(
    "Power of the GPUs",
    "Power that the GPUs draw, by node.",
    "watt",
    Query(
        'sum by (node) (max by (node, gpu) (DCGM_FI_DEV_POWER_USAGE{node=~"$node"}))',
        "{{node}}",
    ),
    stacked=True,
)

BOARD = board(
    "cluster",
    "Cluster overview",
    "Does the cluster work, and is it used? Start here.",
    section(
        "At a glance",
        [NODES, NODES_OUT_OF_SERVICE, JOBS_RUNNING, JOBS_WAITING, ALERTS, HOSTS_NOT_ANSWERING],
        [CPUS_ALLOCATED, GPUS_ALLOCATED, CPU_BUSY, MEMORY_USED],
    ),
    section(
        "What is wrong", [ALERTS_THAT_FIRE, NODES_OUT_OF_SERVICE_AND_WHY], [STATE_OF_EACH_NODE]
    ),
    section("Use", [JOBS, WHY_JOBS_WAIT], [GPUS_ALLOCATED_BY_PARTITION, POWER_OF_THE_GPUS]),
)
