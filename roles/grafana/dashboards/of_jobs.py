"""What is asked of jobs with GPUs, by whichever boards are about them.

Series of GPUs carry the job that has them (`hpc_job`); a GPU that two jobs share is in both. CPU
and memory are those of a job's nodes, whoever uses them; what the job alone used, `job-report`
says.
"""

from __future__ import annotations

from roles.grafana.dashboards.shared import of_node, per_gpu

JOB = 'hpc_job=~"$hpc_job",node=~"$node"'
BY_GPU = "hpc_job, node, gpu"
NODES = f"max by (hpc_job, node) (slurm_job_gpu_info{{{JOB}}})"


def field(name: str) -> str:
    return per_gpu(name, BY_GPU, JOB)


def recorded(name: str) -> str:
    """What rules/boards.yml of the role prometheus records of each job, of those on the nodes."""
    each = f'max by (hpc_job) (job:{name}{{hpc_job=~"$hpc_job"}})'
    return f"({each} and on (hpc_job) {NODES})"


def over_range(function: str, name: str) -> str:
    """Of each GPU over the displayed time."""
    return f"max by ({BY_GPU}) ({function}(DCGM_FI_DEV_{name}{{{JOB}}}[$__range]))"


def _of_nodes(value: str) -> str:
    """The mean over a job's nodes of what is so for each node."""
    return f"avg by (hpc_job) ({NODES} * on (node) group_left () ({value}))"


NODES_CPU = of_node("node_cpu:busy")
NODES_MEMORY = (
    '1 - max by (node) (node_memory_MemAvailable_bytes{node=~"$node"})'
    ' / max by (node) (node_memory_MemTotal_bytes{node=~"$node"})'
)
CPU = _of_nodes(NODES_CPU)
MEMORY = _of_nodes(NODES_MEMORY)
BUSY = recorded("dcgm_gpu_util:avg")
LEAST = recorded("dcgm_gpu_util:min")
POWER = recorded("dcgm_power_usage:sum")
TENSOR = recorded("dcgm_tensor_active:avg")
GPU_MEMORY = recorded("dcgm_fb_used:ratio")
GPUS = f'max by (hpc_job) (slurm_job_gpus{{hpc_job=~"$hpc_job"}}) and on (hpc_job) {NODES}'
ENERGY = f"sum by (hpc_job) ({over_range('increase', 'TOTAL_ENERGY_CONSUMPTION')}) / 3.6e6"
