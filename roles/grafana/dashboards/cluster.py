"""Cluster overview: is the cluster well, and is it used? What is worst comes first."""

from roles.grafana.dashboards.shared import (
    FEW,
    WORST,
    Column,
    Query,
    above,
    board,
    graph,
    highest,
    number,
    of_node,
    rows,
    section,
    share,
    states,
    worst,
)

# The worst of what a node is, as rules/boards.yml of the role prometheus records it.
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
STATE = of_node("slurm_node_state:worst")
_OUT = 'slurm_node_state{state=~"down|error|fail|drain|not_responding",node=~"$node"}'
_FIRING = 'ALERTS{alertstate="firing",severity!="none",node=~"$node|"}'


def _alerts(severity: str) -> str:
    """Of each node, of those with the most: a critical one counts more than any others."""

    def of(words: str) -> str:
        return f'count by (node) (ALERTS{{alertstate="firing",severity=~"{words}",node=~"$node"}})'

    critical, others = of("critical"), of("warning|info")
    most = f"topk({WORST}, 1000 * {critical} + on (node) {others} or 1000 * {critical} or {others})"
    return f"{of(severity)} and on (node) {most}"


def _nodes(comparison: str) -> str:
    return f"count({STATE} {comparison}) or 0 * count({STATE})"


NODES = number("Nodes", "Nodes that Slurm knows.", "locale", highest("slurm_nodes"))

NODES_OUT_OF_SERVICE = number(
    "Nodes out of service",
    "Nodes that take no jobs: down, failed, drained, or not responding.",
    "locale",
    f"count(max by (node) ({_OUT}) == 1) or vector(0)",
    above(1),
)

JOBS_RUNNING = number("Jobs running", "Jobs that run.", "locale", highest("slurm_jobs_running"))

JOBS_WAITING = number(
    "Jobs waiting",
    "Waiting jobs, except those that are held.",
    "locale",
    "max(slurm_jobs_pending - slurm_jobs_hold)",
)

ALERTS = number(
    "Alerts",
    "Alerts that fire.",
    "locale",
    'count(ALERTS{alertstate="firing",severity!="none"}) or vector(0)',
    above(1),
)

HOSTS_NOT_ANSWERING = number(
    "Hosts not answering",
    "Hosts that Prometheus cannot scrape.",
    "locale",
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
    f"avg({of_node('node_cpu:busy')})",
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
    f"On how many nodes; of each severity the {FEW} that fire most. What they mean and what to do"
    " is in docs/runbooks.",
    {"severity": "Severity", "alertname": "Alert"},
    Column(f"topk by (severity) ({FEW}, count by (severity, alertname) ({_FIRING}))", "Times"),
    none="No alert fires.",
)

NODES_WITH_ALERTS = rows(
    "Nodes with alerts",
    f"The {WORST} nodes with the most critical alerts, then with the most others.",
    {"node": "Node"},
    Column(_alerts("critical"), "Critical"),
    Column(_alerts("warning|info"), "Others"),
    none="No alert fires for a node.",
    first="Critical",
)

NODES_OUT_OF_SERVICE_AND_WHY = rows(
    "Nodes out of service, and why",
    f"Slurm's reasons, and who set them; {WORST} nodes, first those that are down.",
    {"node": "Node", "reason": "Reason", "user": "By"},
    Column(
        f"topk({WORST}, max by (node, reason, user) ("
        'max by (node, reason, user) (slurm_node_reason_info{node=~"$node"})'
        f" * on (node) group_left () ({STATE} or on (node)"
        ' 0 * max by (node) (slurm_node_reason_info{node=~"$node"}))))'
    ),
    none="No node has a reason.",
)

WHY_NODES_ARE_OUT_OF_SERVICE = rows(
    "Why nodes are out of service",
    f"How many nodes have the same reason; the {WORST} most frequent.",
    {"reason": "Reason", "user": "By"},
    Column(
        f"topk({WORST}, count by (reason, user) (max by (node, reason, user)"
        ' (slurm_node_reason_info{node=~"$node"})))',
        "Nodes",
    ),
    none="No node has a reason.",
)

NODES_BY_STATE = graph(
    "Nodes by state",
    "If a node has several of Slurm's states, the worst one counts.",
    "short",
    Query(_nodes("== 5"), "down"),
    Query(_nodes("== 4"), "drained"),
    Query(_nodes("== 3"), "reserved"),
    Query(_nodes("== 2"), "in use"),
    Query(_nodes("< 2"), "idle"),
    stacked=True,
)

STATE_OF_THE_WORST_NODES = states(
    "State of the worst nodes",
    f"Slurm's state of {WORST} nodes, of those that are down or drained at the end first. If a node"
    " has several states, the worst one is shown.",
    Query(worst(STATE), "{{node}}"),
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
    f"The {FEW} most frequent of Slurm's reasons. Each task of an array counts.",
    "short",
    Query(worst("max by (reason) (slurm_jobs_pending_reason)", FEW), "{{reason}}"),
    stacked=True,
)

GPUS_ALLOCATED_BY_PARTITION = graph(
    "GPUs allocated by partition",
    f"The {FEW} with the most. A node counts in each of its partitions.",
    "short",
    Query(worst("max by (partition) (slurm_partition_gpus_alloc)", FEW), "{{partition}}"),
)

POWER_OF_THE_GPUS = graph(
    "Power of the GPUs",
    "Power that all GPUs draw together.",
    "watt",
    Query(f"sum({of_node('dcgm_power_usage:sum')})", "all GPUs"),
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
        "What is wrong",
        [ALERTS_THAT_FIRE, NODES_WITH_ALERTS],
        [WHY_NODES_ARE_OUT_OF_SERVICE, NODES_OUT_OF_SERVICE_AND_WHY],
        [STATE_OF_THE_WORST_NODES, NODES_BY_STATE],
    ),
    section("Use", [JOBS, WHY_JOBS_WAIT], [GPUS_ALLOCATED_BY_PARTITION, POWER_OF_THE_GPUS]),
)
