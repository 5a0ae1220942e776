"""Resources of jobs: what do running jobs make of their CPUs and memory, and what do they move?

Only where `job_metrics` is on: then compute nodes read it from the jobs' cgroups. Of each kind the
jobs that stand out are shown, for a large cluster runs thousands.
"""

from roles.grafana.dashboards.shared import (
    FEW,
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
    share,
    worst,
)

_JOB = 'hpc_job=~"$hpc_job",node=~"$node"'


def _of_job(name: str) -> str:
    """The sum over the job's nodes."""
    return f"sum by (hpc_job) (plumbline_job_{name}{{{_JOB}}})"


def _rate(name: str) -> str:
    return f"sum by (hpc_job) (rate(plumbline_job_{name}{{{_JOB}}}[$__rate_interval]))"


_BUSY = f"{_rate('cpu_seconds_total')} / {_of_job('cpus')}"
_FULL = f"{_of_job('memory_bytes')} / {_of_job('memory_limit_bytes')}"
_KILLED = _of_job("oom_kills_total")

JOBS = number(
    "Jobs",
    "Running jobs whose use is measured.",
    "short",
    f"count({_of_job('processes')})",
)

CPUS_BUSY = share(
    "Their CPUs busy",
    "Of all CPUs that these jobs may run on.",
    f"sum({_rate('cpu_seconds_total')}) / sum({_of_job('cpus')})",
)

MEMORY_USED = share(
    "Their memory used",
    "Of what these jobs may have.",
    f"sum({_of_job('memory_bytes')}) / sum({_of_job('memory_limit_bytes')})",
)

KILLED = number(
    "Jobs short of memory",
    "Jobs of which the kernel has killed a process for want of memory.",
    "short",
    f"count({_KILLED} > 0) or vector(0)",
    above(1),
)

LEAST_BUSY = rows(
    "Jobs with the least busy CPUs",
    f"The {WORST} that have the most CPUs idle.",
    {"hpc_job": "Job"},
    Column(
        f"topk({WORST}, {_of_job('cpus')} - {_rate('cpu_seconds_total')})",
        "CPUs idle",
    ),
)

FULLEST = rows(
    "Jobs that are close to their limit of memory",
    f"The {WORST} closest. Above it the kernel ends a process of the job.",
    {"hpc_job": "Job"},
    Column(f"topk({WORST}, {_FULL})", "Of its memory", "percentunit"),
)

CPUS_BY_JOB = graph(
    "CPUs busy, by job",
    f"Share of the CPUs that a job may run on, of the {WORST} least busy at the end.",
    "percentunit",
    Query(worst(_BUSY, least=True), "{{hpc_job}}"),
    every="1m",
)

MEMORY_BY_JOB = graph(
    "Memory, by job",
    f"On all of a job's nodes, without file cache that can go, of the {WORST} largest.",
    "bytes",
    Query(worst(_of_job("memory_bytes")), "{{hpc_job}}"),
    every="1m",
)

READ_BY_JOB = graph(
    "Read and written, by job",
    "Files on any filesystem and pipes, by the calls of the job's processes;"
    f" of each the {FEW} jobs with the most.",
    "Bps",
    Query(worst(_rate("read_bytes_total"), FEW), "{{hpc_job}} read"),
    Query(worst(_rate("written_bytes_total"), FEW), "{{hpc_job}} written"),
    every="1m",
)

NETWORK_BY_JOB = graph(
    "Network, by job",
    "Cards and InfiniBand ports of nodes that a job has for itself.",
    "Bps",
    Query(
        worst(
            "sum by (hpc_job, direction)"
            f" (rate(plumbline_job_network_bytes_total{{{_JOB}}}[$__rate_interval]))"
        ),
        "{{hpc_job}} {{direction}}",
    ),
    every="1m",
)


BOARD = board(
    "job-use",
    "Resources of jobs",
    "What do running jobs make of their CPUs and memory? Needs job_metrics.",
    section("At a glance", [JOBS, CPUS_BUSY, MEMORY_USED, KILLED], [LEAST_BUSY, FULLEST]),
    section("CPU and memory", [CPUS_BY_JOB, MEMORY_BY_JOB]),
    section("Files and network", [READ_BY_JOB, NETWORK_BY_JOB]),
    variables=[choice("hpc_job", "Job", "plumbline_job_processes", everything=".+")],
    since="now-1h",
)
