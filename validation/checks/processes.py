"""No other process uses a node's GPUs.

What it checks   While the check has the node's GPUs to itself, no process has a CUDA context on a
                 GPU, except the MPS server.
Why it matters   A process that a job left behind, or that was started outside Slurm, takes memory
                 and time from the job that was given the GPU.
What to do       Find out whose process it is. If a job left it behind, Slurm's process tracking
                 (cgroup) did not end it, or it hangs in the driver and only a reboot helps.
                 $ ssh {node} 'nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv'
                 $ ssh {node} 'ps -o pid,user,lstart,stat,cgroup,args -p PID'
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from cluster.text import printable
from validation.checks.health import Finding, GpuValues, each_gpu, none_faulty
from validation.model import Job, Metric, Reply, Result, Tier, Verdict
from validation.thresholds import Rules

NAME = "processes"
TIER = Tier.NODE
PAYLOAD = "health"

_THRESHOLD = none_faulty("the job was given all GPUs of the node, and computes on none of them")
_ALLOWED = ("nvidia-cuda-mps-server",)
_SHOWN = 3


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    return each_gpu(NAME, job, reply, _THRESHOLD, examine, _measures)


def examine(gpu: GpuValues) -> Iterator[Finding]:
    processes = gpu.items("processes")
    if processes is None:
        yield Finding(Verdict.INCONCLUSIVE, "NVML does not know this board's processes")
        return
    strangers = []
    for process in processes:
        pid, name = process.whole("pid"), process.maybe_text("name")
        if process.has("memory_mb"):
            process.whole("memory_mb")
        program = PurePosixPath((name or "").split(" ")[0]).name
        if program not in _ALLOWED:
            strangers.append(f"{pid} ({printable(name, 40)})" if name else str(pid))
    if strangers:
        more = f" and {len(strangers) - _SHOWN} more" if len(strangers) > _SHOWN else ""
        kind = "process" if len(strangers) == 1 else "processes"
        yield Finding(Verdict.FAIL, f"used by {kind} {', '.join(strangers[:_SHOWN])}{more}")


def _measures(gpu: GpuValues) -> Iterator[Metric]:
    processes = gpu.items("processes")
    if processes is not None:
        yield Metric("processes", len(processes))
    used = gpu.whole("memory_used_mb")
    if used is not None:
        yield Metric("memory used", used, "MiB")
