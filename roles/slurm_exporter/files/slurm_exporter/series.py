"""The series that come of what was parsed. Pure functions; the role slurm_exporter has their table.

Names that slurmctld's OpenMetrics endpoint has are told only where it does not tell them itself.
Its names for memory are left alone: they say bytes and are MiB (26.05.5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cluster.exporter import Family, gauge
from cluster.text import printable
from roles.slurm_exporter.files.slurm_exporter.diagnostics import Diagnostics
from roles.slurm_exporter.files.slurm_exporter.jobs import QueuedJob
from roles.slurm_exporter.files.slurm_exporter.nodes import SlurmNode
from roles.slurm_exporter.files.slurm_exporter.shares import Share

REASON_LENGTH = 200

# 1 or 0 for each node, so that the time in a state can be summed up; any other only as 1.
STATES = (
    "allocated", "down", "error", "future", "idle", "mixed", "unknown",
    "completing", "drain", "fail", "invalid_reg", "maintenance", "not_responding", "planned",
    "powered_down", "reboot_issued", "reboot_requested", "reserved",
)  # fmt: skip


@dataclass(frozen=True)
class Native:
    """Which of Slurm's own names the controller tells itself: all but GPUs from 25.11 on, those
    from 26.05 on.
    """

    openmetrics: bool
    gpus: bool


def _by(labels: tuple[str, ...], name: str, text: str, samples: Mapping[str, float]) -> Family:
    return Family(name, text, labels, {(key,): value for key, value in samples.items()})


# --- nodes ---------------------------------------------------------------------------------------


def nodes(all_nodes: Sequence[SlurmNode], native: Native) -> Iterator[Family]:
    yield Family(
        "slurm_node_state",
        "1 where the node has this state, base or flag, in Slurm's words",
        ("node", "state"),
        {
            (node.name, state): float(state in node.states)
            for node in all_nodes
            for state in dict.fromkeys((*STATES, *sorted(node.states)))
        },
    )
    yield Family(
        "slurm_node_reason_info",
        "Why the node is out of service, and who says so",
        ("node", "reason", "user"),
        {
            (node.name, printable(node.reason, REASON_LENGTH), node.user): 1.0
            for node in all_nodes
            if node.reason
        },
    )
    yield _by(
        ("node",),
        "slurm_node_reason_timestamp_seconds",
        "When that reason was set",
        {node.name: node.reason_at for node in all_nodes if node.reason_at is not None},
    )
    if not native.gpus:
        yield _of_nodes("gpus", "Total number of GPUs in the node", all_nodes, lambda n: n.gpus)
        yield _of_nodes(
            "gpus_alloc", "GPUs allocated in the node", all_nodes, lambda n: n.gpus_alloc
        )
    if native.openmetrics:
        return
    yield _of_nodes("cpus", "Total number of cpus in the node", all_nodes, lambda n: n.cpus)
    yield _of_nodes("cpus_alloc", "Allocated cpus in the node", all_nodes, lambda n: n.cpus_alloc)
    yield _of_nodes(
        "cpus_effective",
        "CPUs allocatable to jobs not reserved for system usage",
        all_nodes,
        lambda n: n.cpus_effective,
    )
    yield _of_nodes("cpus_idle", "Idle cpus in the node", all_nodes, _idle)
    yield gauge("slurm_nodes", "Total number of nodes", len(all_nodes))
    for name, has in NODES.items():
        yield gauge(f"slurm_nodes_{name}", f"Nodes: {name}", sum(map(has, all_nodes)))


def _of_nodes(
    name: str, text: str, all_nodes: Sequence[SlurmNode], value: Callable[[SlurmNode], int]
) -> Family:
    samples = {node.name: float(value(node)) for node in all_nodes}
    return _by(("node",), f"slurm_node_{name}", text, samples)


def _idle(node: SlurmNode) -> int:
    return max(0, node.cpus_effective - node.cpus_alloc)


def _has(state: str) -> Callable[[SlurmNode], bool]:
    return lambda node: state in node.states


def _draining(node: SlurmNode) -> bool:
    return "drain" in node.states and bool(
        node.states & {"allocated", "mixed", "error", "completing"}
    )


def _drained(node: SlurmNode) -> bool:
    return "drain" in node.states and not _draining(node)


# As src/slurmctld/statistics.c counts: a node that drains is not among those that have drained.
NODES: Mapping[str, Callable[[SlurmNode], bool]] = {
    "alloc": _has("allocated"),
    "blocked": _has("blocked"),
    "cloud": _has("cloud"),
    "completing": _has("completing"),
    "down": _has("down"),
    "drain": _drained,
    "drained": _drained,
    "draining": _draining,
    "fail": _has("fail"),
    "future": _has("future"),
    "idle": _has("idle"),
    "invalid_reg": _has("invalid_reg"),
    "maint": _has("maintenance"),
    "mixed": _has("mixed"),
    "noresp": _has("not_responding"),
    "planned": _has("planned"),
    "power_down": _has("power_down"),
    "power_up": _has("power_up"),
    "powered_down": _has("powered_down"),
    "reboot_issued": _has("reboot_issued"),
    "reboot_req": _has("reboot_requested"),
    "resv": _has("reserved"),
    "unknown": _has("unknown"),
}
OF_PARTITION = ("alloc", "down", "drain", "drained", "draining", "idle", "mixed")


# --- partitions ----------------------------------------------------------------------------------


def partitions(all_nodes: Sequence[SlurmNode], native: Native) -> Iterator[Family]:
    """A node counts in each of its partitions."""
    members: dict[str, list[SlurmNode]] = {}
    for node in all_nodes:
        for name in node.partitions:
            members.setdefault(name, []).append(node)

    def summed(name: str, text: str, value: Callable[[SlurmNode], int]) -> Family:
        samples = {part: float(sum(map(value, each))) for part, each in members.items()}
        return _by(("partition",), f"slurm_partition_{name}", text, samples)

    if not native.gpus:
        yield summed("gpus", "Partition total gpus", lambda node: node.gpus)
    yield summed("gpus_alloc", "GPUs allocated on the nodes of the partition", _gpus_alloc)
    if native.openmetrics:
        return
    yield summed("nodes", "Partition total nodes", lambda node: 1)
    yield summed("cpus", "Partition total cpus", lambda node: node.cpus)
    yield summed("nodes_cpus_alloc", "Number of allocated cpus", lambda node: node.cpus_alloc)
    yield summed("nodes_cpus_idle", "Number of idle CPUs on all nodes", _idle)
    yield summed(
        "nodes_cpus_efctv",
        "Number of effective CPUs on all nodes, excludes CoreSpec",
        lambda node: node.cpus_effective,
    )
    for name in OF_PARTITION:
        yield summed(f"nodes_{name}", f"Nodes: {name}", NODES[name])


def _gpus_alloc(node: SlurmNode) -> int:
    return node.gpus_alloc


# --- jobs ----------------------------------------------------------------------------------------

# Slurm's own name of a metric to the state as squeue shows it.
JOBS = {
    "bootfail": "BOOT_FAIL",
    "cancelled": "CANCELLED",
    "completed": "COMPLETED",
    "completing": "COMPLETING",
    "configuring": "CONFIGURING",
    "deadline": "DEADLINE",
    "failed": "FAILED",
    "node_failed": "NODE_FAIL",
    "outofmemory": "OUT_OF_MEMORY",
    "pending": "PENDING",
    "preempted": "PREEMPTED",
    "requeued": "REQUEUED",
    "suspended": "SUSPENDED",
    "timeout": "TIMEOUT",
}


# What a node can be to blame for. A job that used too much memory or time failed by itself.
_FAILED = ("FAILED", "BOOT_FAIL", "NODE_FAIL")


def _ended(all_jobs: Sequence[QueuedJob]) -> Family:
    """Jobs on one node alone: which of several a job failed by is not known."""
    counts: dict[tuple[str, ...], float] = {}
    for job in all_jobs:
        if len(job.nodes) == 1 and job.state in ("COMPLETED", *_FAILED):
            (node,) = job.nodes
            for result in ("completed", "failed"):
                counts.setdefault((node, result), 0.0)
            counts[node, "failed" if job.state in _FAILED else "completed"] += 1
    return Family(
        "slurm_node_jobs_ended",
        "Jobs that ended on the node within MinJobAge, by result; none, no series",
        ("node", "result"),
        counts,
    )


def jobs(all_jobs: Sequence[QueuedJob], native: Native, per_job: bool) -> Iterator[Family]:
    pending = [job for job in all_jobs if job.state == "PENDING"]
    running = [job for job in all_jobs if job.runs]
    yield _by(
        ("reason",),
        "slurm_jobs_pending_reason",
        "Jobs that wait, tasks of arrays each, by reason",
        Counter(job.reason for job in pending),
    )
    yield _ended(all_jobs)
    if per_job:
        yield from _each_job([job for job in running if job.gpus])
    allocated = [job for job in all_jobs if job.runs or job.state == "SUSPENDED"]
    if not native.gpus:
        total = sum(job.gpus for job in allocated)
        yield gauge("slurm_jobs_gpus_alloc", "Total number of GPUs allocated by jobs", total)
    if native.openmetrics:
        return
    states = Counter(job.state for job in all_jobs)
    held = [job for job in pending if job.held]
    yield gauge("slurm_jobs", "Total number of jobs", len(all_jobs))
    for name, state in JOBS.items():
        yield gauge(f"slurm_jobs_{name}", f"Number of jobs: {name}", states[state])
    yield gauge("slurm_jobs_running", "Number of jobs: running", len(running))
    yield gauge("slurm_jobs_hold", "Number of jobs: hold", len(held))
    cpus = sum(job.cpus for job in allocated)
    yield gauge("slurm_jobs_cpus_alloc", "Total number of Cpus allocated by jobs", cpus)
    busy = {node for job in allocated for node in job.nodes}
    yield gauge("slurm_jobs_nodes_alloc", "Total number of nodes allocated by jobs", len(busy))
    names = sorted({job.partition for job in all_jobs})
    for name, some in (("pending", pending), ("running", running), ("hold", held)):
        counts = Counter(job.partition for job in some)
        yield _by(
            ("partition",),
            f"slurm_partition_jobs_{name}",
            f"Number of jobs: {name}",
            {part: counts[part] for part in names},
        )


def _each_job(running: Iterable[QueuedJob]) -> Iterator[Family]:
    """For joins with what GPUs tell, which has the same label hpc_job."""
    some = list(running)
    yield Family(
        "slurm_job_gpu_info",
        "A running job with GPUs, once for each of its nodes",
        ("hpc_job", "user", "account", "partition", "node"),
        {
            (job.id, job.user, job.account, job.partition, node): 1.0
            for job in some
            for node in job.nodes
        },
    )
    yield _by(
        ("hpc_job",),
        "slurm_job_gpus",
        "GPUs allocated to the running job, on all its nodes together",
        {job.id: float(job.gpus) for job in some},
    )


# --- shares, statistics --------------------------------------------------------------------------


def fairshare(shares: Iterable[Share]) -> Iterator[Family]:
    yield Family(
        "slurm_account_fairshare",
        "Fair-share factor of a user in an account, 0 to 1",
        ("account", "user"),
        {(share.account, share.user): share.fairshare for share in shares},
    )


def scheduler(diagnostics: Diagnostics) -> Iterator[Family]:
    """Names of Slurm's own alone."""
    for name, value in diagnostics.values.items():
        yield gauge(f"slurm_{name}", f"slurmctld's {name}, as sdiag tells it", value)


def rpcs(diagnostics: Diagnostics) -> Iterator[Family]:
    yield _by(
        ("rpc",),
        "slurm_rpc_count",
        "Requests of this kind since slurmctld's statistics began",
        {name: float(rpc.count) for name, rpc in diagnostics.rpcs.items()},
    )
    yield Family(
        "slurm_rpc_seconds_total",
        "What slurmctld spent on requests of this kind since its statistics began",
        ("rpc",),
        {(name,): rpc.seconds for name, rpc in diagnostics.rpcs.items()},
        kind="counter",
    )
