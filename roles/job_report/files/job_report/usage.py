"""What Prometheus knows of a job: its GPUs, and whole nodes where accounting says nothing.

GPU series carry the job's id (hpc_job) where prologs write it down. Where they do not, a job's GPUs
are those of its nodes, if it had them all. The same goes for what node_exporter says of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cluster import prometheus
from cluster.prometheus import Series, Server
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.files.job_report.sacct import AccountedJob

POINTS = 1000  # of one series; Prometheus gives 11,000 at most
INTERVAL_S = 30.0  # of scrapes: a shorter step would show each value twice

T = TypeVar("T")
Ask = Callable[[str], list[Series]]  # a query, for the time of the job; raises NoAnswer
Key = tuple[str, str, str]  # node, GPU, instance of MIG or ""

_BY = "node, gpu, GPU_I_ID"


@dataclass(frozen=True)
class GpuUse:
    """One GPU, or instance of MIG. Percent, MiB and watts; None where nobody says it."""

    node: str
    gpu: str
    instance: str
    busy: float | None
    busy_peak: float | None
    memory_peak_mb: float | None
    memory_mb: float | None
    watts: float | None


@dataclass(frozen=True)
class Gpus:
    """how says how the GPUs were found: by the job's id, or as those of whole nodes."""

    each: tuple[GpuUse, ...]
    how: str


@dataclass(frozen=True)
class Measured:
    """What Prometheus says of a job, and a sentence for each thing that it does not say."""

    cpus_busy: float | None = None
    gpus: Gpus | None = None
    not_known: tuple[str, ...] = ()


def measure(job: AccountedJob, server: Server, now: float) -> Measured:
    """Each part on its own."""
    missing: list[str] = []

    def known(question: Callable[[], T]) -> T | None:
        try:
            return question()
        except (NotKnown, prometheus.NoAnswer) as error:
            if str(error) not in missing:
                missing.append(str(error))
            return None

    def asking() -> Ask:
        start, end = span(job, now)
        return partial(prometheus.over, server, start=start, end=end, step_s=step_s(job, now))

    cpus_busy = found = None
    if (ask := known(asking)) is not None:
        found = known(partial(gpus, job, ask))
        if job.cpu_s is None:
            cpus_busy = known(partial(node_cpu, job, ask))
    return Measured(cpus_busy, found, tuple(missing))


def step_s(job: AccountedJob, now: float) -> float:
    """Seconds between two values, so that a long job has no more than POINTS of them."""
    start, end = span(job, now)
    return max(INTERVAL_S, math.ceil((end - start) / POINTS))


def span(job: AccountedJob, now: float) -> tuple[float, float]:
    """When the job ran, until now if it runs. Raises NotKnown for one that has not begun."""
    if job.start is None:
        raise NotKnown("The job has not begun, so it has used nothing.")
    return job.start, max(job.start, job.end if job.end is not None else now)


def gpus(job: AccountedJob, ask: Ask) -> Gpus | None:
    """None for a job without GPUs. Raises NotKnown."""
    if not job.gpus:
        return None
    uses = _measured(ask, f'hpc_job="{job.id}"')
    if uses:
        return Gpus(uses, "by the job's id")
    uses = _measured(ask, _nodes(job))
    if not uses:
        raise NotKnown(
            "GPU use: Prometheus has no metrics of the job's GPUs for that time; it was shorter "
            "than a scrape, is older than what is kept, or its nodes have no exporter of GPUs."
        )
    if len(uses) != job.gpus:
        raise NotKnown(
            f"GPU use: no metrics carry the job's id (gpu_exporter_job_map), and its nodes have "
            f"{len(uses)} GPUs where it had {job.gpus}, so whose use it was cannot be told."
        )
    return Gpus(uses, "as all GPUs of its nodes, for no metrics carry its id")


def _nodes(job: AccountedJob) -> str:
    """A matcher for the job's nodes; of what a name may have, only dots are special."""
    return f'node=~"{"|".join(name.replace(".", "[.]") for name in job.nodes)}"'


def _measured(ask: Ask, matcher: str) -> tuple[GpuUse, ...]:
    def of(name: str) -> Mapping[Key, Sequence[float]]:
        return _keyed(ask(f"max by ({_BY}) ({name}{{{matcher}}})"))

    used = of("DCGM_FI_DEV_FB_USED")
    busy, free = of("DCGM_FI_DEV_GPU_UTIL"), of("DCGM_FI_DEV_FB_FREE")
    watts = of("DCGM_FI_DEV_POWER_USAGE")
    return tuple(
        GpuUse(
            *key,
            busy=_mean(busy.get(key)),
            busy_peak=max(busy.get(key, ()), default=None),
            memory_peak_mb=max(used.get(key, ()), default=None),
            memory_mb=_total(used.get(key), free.get(key)),
            watts=_mean(watts.get(key)),
        )
        for key in sorted({*used, *busy}, key=_order)
    )


def _keyed(series: Iterable[Series]) -> dict[Key, Sequence[float]]:
    return {
        (gpu.labels.get("node", ""), gpu.labels.get("gpu", ""), gpu.labels.get("GPU_I_ID", "")): (
            gpu.values
        )
        for gpu in series
    }


def _order(key: Key) -> tuple[str, int, int]:
    gpu, instance = (int(part) if part.isdecimal() else -1 for part in key[1:])
    return key[0], gpu, instance


def _mean(values: Sequence[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _total(used: Sequence[float] | None, free: Sequence[float] | None) -> float | None:
    return used[-1] + free[-1] if used and free else None


def busy(gpus: Gpus | None) -> float | None:
    """Between 0 and 1, over all GPUs; None where one of them is not known."""
    each = [gpu.busy for gpu in gpus.each] if gpus else []
    known = [busy for busy in each if busy is not None]
    return sum(known) / len(known) / 100 if known and len(known) == len(each) else None


def kilowatt_hours(gpu_usage: Gpus, elapsed_s: float) -> float | None:
    """What the GPUs used in that time; None where the power of one is not known."""
    watts = [gpu.watts for gpu in gpu_usage.each]
    known = [power for power in watts if power is not None]
    return sum(known) * elapsed_s / 3.6e6 if known and len(known) == len(watts) else None


def node_cpu(job: AccountedJob, ask: Ask) -> float:
    """CPUs that its nodes had busy in the mean, for a job that had all of them. Raises NotKnown."""
    idle = f'node_cpu_seconds_total{{mode="idle",{_nodes(job)}}}'
    there = ask(f"count({idle})")
    if not there:
        raise NotKnown("CPU use: Slurm has not counted it, and Prometheus has no metrics of it.")
    count = int(max(there[0].values))
    if count != job.cpus:
        raise NotKnown(
            f"CPU use: Slurm has not counted it, and the job had {job.cpus} of the {count} CPUs of "
            "its nodes, so whose use it was cannot be told."
        )
    spare = ask(f"sum(rate({idle}[2m]))")
    if not spare:
        raise NotKnown("CPU use: Slurm has not counted it, and the job was too short for a rate.")
    mean = _mean(spare[0].values)
    assert mean is not None
    return max(0.0, count - mean)
