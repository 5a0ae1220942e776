"""Job view: what do jobs with GPUs make of what they have?

Series of GPUs carry the job that has them (`hpc_job`); a GPU that two jobs share is in both. CPU
and memory are those of a job's nodes, whoever uses them; what the job alone used, `job-report`
says.
"""

from roles.grafana.dashboards.shared import (
    Column,
    Query,
    board,
    choice,
    gpu_memory,
    graph,
    number,
    per_gpu,
    rows,
    section,
    share,
)

_JOB = 'hpc_job=~"$hpc_job",node=~"$node"'
_BY_GPU = "hpc_job, node, gpu"
_NODES = f"max by (hpc_job, node) (slurm_job_gpu_info{{{_JOB}}})"


def _field(name: str) -> str:
    return per_gpu(name, _BY_GPU, _JOB)


def _of_nodes(value: str) -> str:
    """The mean over a job's nodes of what is so for each node."""
    return f"avg by (hpc_job) ({_NODES} * on (node) group_left () ({value}))"


_CPU = _of_nodes('1 - avg by (node) (rate(node_cpu_seconds_total{mode="idle"}[$__rate_interval]))')
_MEMORY = _of_nodes(
    "1 - max by (node) (node_memory_MemAvailable_bytes)"
    " / max by (node) (node_memory_MemTotal_bytes)"
)
_GPU_MEMORY = (
    f"sum by (hpc_job) ({gpu_memory('FB_USED', _BY_GPU, _JOB)})"
    f" / (sum by (hpc_job) ({gpu_memory('FB_USED', _BY_GPU, _JOB)})"
    f" + sum by (hpc_job) ({gpu_memory('FB_FREE', _BY_GPU, _JOB)}))"
)
_ENERGY = (
    "sum by (hpc_job) (max by (hpc_job, node, gpu) (increase("
    f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{_JOB}}}[$__range]))) / 3.6e6"
)

JOBS = number(
    "Jobs",
    "Running jobs with GPUs.",
    "short",
    f"count(count by (hpc_job) (slurm_job_gpu_info{{{_JOB}}})) or vector(0)",
)

GPUS = number(
    "GPUs",
    "GPUs that these jobs have.",
    "short",
    'sum(max by (hpc_job) (slurm_job_gpus{hpc_job=~"$hpc_job"})) or vector(0)',
)

GPUS_BUSY = share(
    "GPUs busy",
    "The mean over the jobs' GPUs of the time in which a kernel ran.",
    f"avg({_field('GPU_UTIL')}) / 100",
)

CPUS_OF_THEIR_NODES_BUSY = share(
    "CPUs of their nodes busy",
    "The mean over the nodes, whoever uses them.",
    f"avg({_CPU})",
)

MEMORY_OF_THEIR_NODES_USED = share(
    "Memory of their nodes used",
    "The mean over the nodes, whoever uses it.",
    f"avg({_MEMORY})",
)

JOBS_WITH_GPUS = rows(
    "Jobs with GPUs",
    "Those that run now.",
    {
        "hpc_job": "Job",
        "user": "User",
        "account": "Account",
        "partition": "Partition",
    },
    Column(
        "count by (hpc_job, user, account, partition) (max by (hpc_job, user, account,"
        f" partition, node) (slurm_job_gpu_info{{{_JOB}}}))",
        "Nodes",
    ),
    Column('max by (hpc_job) (slurm_job_gpus{hpc_job=~"$hpc_job"})', "GPUs"),
    Column(f"avg by (hpc_job) ({_field('GPU_UTIL')})", "GPUs busy", "percent"),
    Column(_GPU_MEMORY, "GPU memory", "percentunit"),
    Column(_CPU, "Nodes' CPU", "percentunit"),
    Column(_MEMORY, "Nodes' memory", "percentunit"),
)

GPUS_BUSY_BY_JOB = graph(
    "GPUs busy, by job",
    "The mean over a job's GPUs of the time in which a kernel ran.",
    "percent",
    Query(f"avg by (hpc_job) ({_field('GPU_UTIL')})", "{{hpc_job}}"),
    top=100,
)

EACH_GPU_BUSY = graph(
    "Each GPU busy",
    "A GPU that is less busy than the others may delay the job.",
    "percent",
    Query(_field("GPU_UTIL"), "{{hpc_job}} {{node}} {{gpu}}"),
    top=100,
)

GPU_MEMORY_USED_BY_JOB = graph(
    "GPU memory used, by job",
    "Used share of the memory of the job's GPUs.",
    "percentunit",
    Query(_GPU_MEMORY, "{{hpc_job}}"),
    top=1,
)

GPU_POWER_BY_JOB = graph(
    "GPU power, by job",
    "Power that the job's GPUs draw together.",
    "watt",
    Query(f"sum by (hpc_job) ({_field('POWER_USAGE')})", "{{hpc_job}}"),
    stacked=True,
)

TENSOR_CORES_AT_WORK_BY_JOB = graph(
    "Tensor cores at work, by job",
    "Share of the time in which they were active. Only dcgm-exporter reports it.",
    "percentunit",
    Query(
        "avg by (hpc_job) (max by (hpc_job, node, gpu)"
        f" (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{_JOB}}}))",
        "{{hpc_job}}",
    ),
    top=1,
)

OVER_THE_WHOLE_TIME = rows(
    "Over the whole time",
    "In the displayed time: how busy the GPUs were, how busy the least busy one was,"
    " and what they used.",
    {"hpc_job": "Job"},
    Column(
        "avg by (hpc_job) (max by (hpc_job, node, gpu)"
        f" (avg_over_time(DCGM_FI_DEV_GPU_UTIL{{{_JOB}}}[$__range])))",
        "GPUs busy",
        "percent",
    ),
    Column(
        "min by (hpc_job) (max by (hpc_job, node, gpu)"
        f" (avg_over_time(DCGM_FI_DEV_GPU_UTIL{{{_JOB}}}[$__range])))",
        "the least",
        "percent",
    ),
    Column(
        f"max by (hpc_job) (max_over_time(DCGM_FI_DEV_FB_USED{{{_JOB}}}[$__range]))",
        "Memory at most",
        "mbytes",
    ),
    Column(_ENERGY, "Energy", "watth"),
)

CPU_OF_ITS_NODES_BY_JOB = graph(
    "CPU of its nodes, by job",
    "The mean over the nodes, whoever uses them.",
    "percentunit",
    Query(_CPU, "{{hpc_job}}"),
    top=1,
)

MEMORY_OF_ITS_NODES_BY_JOB = graph(
    "Memory of its nodes, by job",
    "The mean over the nodes, whoever uses it.",
    "percentunit",
    Query(_MEMORY, "{{hpc_job}}"),
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
    ),
    section(
        "GPUs",
        [GPUS_BUSY_BY_JOB, EACH_GPU_BUSY],
        [GPU_MEMORY_USED_BY_JOB, GPU_POWER_BY_JOB],
        [TENSOR_CORES_AT_WORK_BY_JOB, OVER_THE_WHOLE_TIME],
    ),
    section("Nodes of the jobs", [CPU_OF_ITS_NODES_BY_JOB, MEMORY_OF_ITS_NODES_BY_JOB]),
    variables=[choice("hpc_job", "Job", "slurm_job_gpu_info", everything=".+")],
    since="now-1h",
)
