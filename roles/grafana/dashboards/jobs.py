"""Job view: what do the jobs with GPUs make of what they have? Those that waste come first."""

from roles.grafana.dashboards import of_jobs
from roles.grafana.dashboards.of_jobs import BUSY, CPU, GPU_MEMORY, MEMORY, POWER, TENSOR, field
from roles.grafana.dashboards.shared import (
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

_WHOSE = "hpc_job, user, account, partition"
_LARGEST = f"topk({WORST}, {of_jobs.GPUS})"
_LEAST_BUSY = (
    f"bottomk({WORST}, avg by (hpc_job) ({of_jobs.over_range('avg_over_time', 'GPU_UTIL')}))"
)


def _of_largest(value: str) -> str:
    return f"{value} and on (hpc_job) {_LARGEST}"


def _of_least_busy(value: str) -> str:
    return f"{value} and on (hpc_job) {_LEAST_BUSY}"


JOBS = number(
    "Jobs",
    "Running jobs with GPUs.",
    "locale",
    f"count(count by (hpc_job) (slurm_job_gpu_info{{{of_jobs.JOB}}})) or vector(0)",
)

GPUS = number(
    "GPUs",
    "GPUs that these jobs have.",
    "locale",
    f"sum({of_jobs.GPUS}) or vector(0)",
)

GPUS_BUSY = share(
    "GPUs busy",
    "The mean over the jobs' GPUs of the time in which a kernel ran.",
    f"avg({field('GPU_UTIL')}) / 100",
)

CPUS_OF_THEIR_NODES_BUSY = share(
    "CPUs of their nodes busy",
    "The mean over the nodes, whoever uses them.",
    f"avg({CPU})",
)

MEMORY_OF_THEIR_NODES_USED = share(
    "Memory of their nodes used",
    "The mean over the nodes, whoever uses it.",
    f"avg({MEMORY})",
)

JOBS_WITH_GPUS = rows(
    "Jobs with GPUs",
    f"The {WORST} largest of those that run now.",
    {"hpc_job": "Job", "user": "User", "account": "Account", "partition": "Partition"},
    Column(
        _of_largest(
            f"count by ({_WHOSE}) (max by ({_WHOSE}, node) (slurm_job_gpu_info{{{of_jobs.JOB}}}))"
        ),
        "Nodes",
    ),
    Column(_LARGEST, "GPUs"),
    Column(_of_largest(BUSY), "GPUs busy", "percent"),
    Column(_of_largest(GPU_MEMORY), "GPU memory", "percentunit"),
    Column(_of_largest(CPU), "Nodes' CPU", "percentunit"),
    Column(_of_largest(MEMORY), "Nodes' memory", "percentunit"),
    none="No job has a GPU.",
    first="GPUs",
)

OVER_THE_WHOLE_TIME = rows(
    "Over the whole time",
    "In the displayed time: how busy the GPUs were, how busy the least busy one was,"
    f" and what they used; the {WORST} jobs that were least busy.",
    {"hpc_job": "Job"},
    Column(_LEAST_BUSY, "GPUs busy", "percent"),
    Column(
        _of_least_busy(f"min by (hpc_job) ({of_jobs.over_range('avg_over_time', 'GPU_UTIL')})"),
        "the least",
        "percent",
    ),
    Column(
        _of_least_busy(f"max by (hpc_job) ({of_jobs.over_range('max_over_time', 'FB_USED')})"),
        "Memory at most",
        "mbytes",
    ),
    Column(_of_least_busy(of_jobs.ENERGY), "Energy", "watth"),
)

GPUS_BUSY_BY_JOB = graph(
    "GPUs busy, by job",
    "The mean over a job's GPUs of the time in which a kernel ran;"
    f" the {WORST} jobs that are least busy at the end.",
    "percent",
    Query(worst(BUSY, least=True), "{{hpc_job}}"),
    top=100,
)

GPU_MEMORY_USED_BY_JOB = graph(
    "GPU memory used, by job",
    f"Used share of the memory of the job's GPUs; the {WORST} jobs with the least.",
    "percentunit",
    Query(worst(GPU_MEMORY, least=True), "{{hpc_job}}"),
    top=1,
)

GPU_POWER_BY_JOB = graph(
    "GPU power, by job",
    f"Power that the job's GPUs draw together; the {WORST} jobs that draw most.",
    "watt",
    Query(worst(POWER), "{{hpc_job}}"),
    stacked=True,
)

TENSOR_CORES_AT_WORK_BY_JOB = graph(
    "Tensor cores at work, by job",
    f"Share of the time in which they were active; the {WORST} jobs with the least."
    " Only dcgm-exporter reports it.",
    "percentunit",
    Query(worst(TENSOR, least=True), "{{hpc_job}}"),
    top=1,
)

CPU_OF_ITS_NODES_BY_JOB = graph(
    "CPU of its nodes, by job",
    f"The mean over the nodes, whoever uses them; the {WORST} jobs with the most.",
    "percentunit",
    Query(worst(CPU), "{{hpc_job}}"),
    top=1,
)

MEMORY_OF_ITS_NODES_BY_JOB = graph(
    "Memory of its nodes, by job",
    f"The mean over the nodes, whoever uses it; the {WORST} jobs with the most.",
    "percentunit",
    Query(worst(MEMORY), "{{hpc_job}}"),
    top=1,
)

BOARD = board(
    "jobs",
    "Job view",
    "How do running jobs use their GPUs? After a job, job-report shows what it used.",
    section(
        "At a glance",
        [JOBS, GPUS, GPUS_BUSY, CPUS_OF_THEIR_NODES_BUSY, MEMORY_OF_THEIR_NODES_USED],
        [JOBS_WITH_GPUS],
        [OVER_THE_WHOLE_TIME],
    ),
    section(
        "GPUs",
        [GPUS_BUSY_BY_JOB, TENSOR_CORES_AT_WORK_BY_JOB],
        [GPU_MEMORY_USED_BY_JOB, GPU_POWER_BY_JOB],
    ),
    section("Nodes of the jobs", [CPU_OF_ITS_NODES_BY_JOB, MEMORY_OF_ITS_NODES_BY_JOB]),
    variables=[choice("hpc_job", "Job", "slurm_job_gpu_info", everything=".+")],
    since="now-1h",
)
