"""What the jobs of this node use while they run, as series.

A series is there while its job is. Without per_job there are sums of the node, whatever the number
of jobs: see the role's README.md for what that costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from cluster.exporter import Family, Labels, gauge
from roles.slurm_exporter.files.slurm_exporter import cgroups
from roles.slurm_exporter.files.slurm_exporter.cgroups import Host, Use

# Processes that a round asks for what they read and wrote, 20 µs each: a job that starts no end
# of them loses its own series of that, and no other does.
MOST_PROCESSES = 20_000

_OF_JOB = {
    "cpu_s": ("cpu_seconds_total", "CPU seconds that the job has used on this node", "counter"),
    "cpus": ("cpus", "CPUs that the job may run on", "gauge"),
    "memory_bytes": ("memory_bytes", "Memory of the job without cache that can go", "gauge"),
    "memory_peak_bytes": ("memory_peak_bytes", "The most memory that the job had", "gauge"),
    "memory_limit_bytes": ("memory_limit_bytes", "Memory that the job may have", "gauge"),
    "oom_kills": ("oom_kills_total", "Processes that were killed for want of memory", "counter"),
}
_BYTES = "Bytes that the job's processes {}, of files and pipes"
_NETWORK = "Bytes of the node's cards and ports while the job was alone on the node"


@dataclass(frozen=True)
class JobUse:
    """flow is bytes read and written, None where that was not asked; network is bytes by device
    and direction.
    """

    use: Use
    processes: int
    flow: tuple[int, int] | None
    network: Mapping[tuple[str, str], int]


@dataclass
class _Flow:
    """Sums that never fall."""

    read: int = 0
    written: int = 0


class Jobs:
    """It remembers what it saw in the round before, of jobs that still run."""

    def __init__(self, host: Host, per_job: bool, most: int = MOST_PROCESSES) -> None:
        self._host = host
        self._per_job = per_job
        self._most = most
        self._flows: dict[str, _Flow] = {}
        self._alone = ""
        self._counts: Mapping[str, tuple[int, int]] = {}
        self._network: dict[str, dict[tuple[str, str], int]] = {}
        self._cpu_of: dict[str, float] = {}
        self._cpu_s = 0.0

    def collect(self) -> Iterator[Family]:
        """Raises Failed where Slurm has no cgroups here."""
        # Slurm may leave the cgroup of a job that ended, for a moment (v2) or for good (v1).
        there = [(cgroup, cgroup.processes) for cgroup in cgroups.jobs(self._host)]
        running = {cgroup.job: cgroup for cgroup, pids in there if pids}
        processes = {cgroup.job: pids for cgroup, pids in there if pids}
        used = {job: cgroups.use(cgroup) for job, cgroup in running.items()}
        asked = self._ask(processes)
        self._listen(set(running))
        self._add({job: use.cpu_s for job, use in used.items() if use.cpu_s is not None})
        yield gauge(
            "plumbline_jobs_running", "Jobs with a process in their cgroup here", len(running)
        )
        if not self._per_job:
            yield from self._of_node(used)
            return
        yield from told(
            {
                job: JobUse(
                    use,
                    len(processes[job]),
                    (self._flows[job].read, self._flows[job].written) if job in asked else None,
                    self._network.get(job, {}),
                )
                for job, use in used.items()
            }
        )

    def _of_node(self, used: Mapping[str, Use]) -> Iterator[Family]:
        memory = sum(use.memory_bytes or 0 for use in used.values())
        yield gauge("plumbline_jobs_memory_bytes", "Memory of all jobs on this node", memory)
        yield Family(
            "plumbline_jobs_cpu_seconds_total",
            "CPU seconds that jobs have used on this node while they were seen",
            (),
            {(): self._cpu_s},
            "counter",
        )

    def _ask(self, processes: Mapping[str, tuple[int, ...]]) -> list[str]:
        """The jobs whose processes were asked, those with fewest first."""
        self._flows = {job: self._flows.get(job, _Flow()) for job in processes}
        asked, left = [], self._most
        for job, pids in sorted(processes.items(), key=lambda item: len(item[1])):
            left -= len(pids)
            if left < 0:
                break
            read, written = cgroups.written_and_read(self._host, pids)
            flow = self._flows[job]
            flow.read, flow.written = max(flow.read, read), max(flow.written, written)
            asked.append(job)
        return asked

    def _listen(self, running: set[str]) -> None:
        """What went over the network since the last round is that of a job that was alone."""
        counts = cgroups.network(self._host)
        alone = next(iter(running)) if len(running) == 1 else ""
        if alone and alone == self._alone:
            mine = self._network.setdefault(alone, {})
            for device, now in counts.items():
                before = self._counts.get(device, now)
                for number, direction in enumerate(("received", "sent")):
                    more = max(0, now[number] - before[number])
                    mine[device, direction] = mine.get((device, direction), 0) + more
        self._network = {job: seen for job, seen in self._network.items() if job in running}
        self._alone, self._counts = alone, counts

    def _add(self, cpu_of: dict[str, float]) -> None:
        """A job that begins has its first seconds counted; of one that ends, its last are not."""
        for job, seconds in cpu_of.items():
            self._cpu_s += max(0.0, seconds - self._cpu_of.get(job, 0.0))
        self._cpu_of = cpu_of


def told(jobs: Mapping[str, JobUse]) -> Iterator[Family]:
    """The series of each job, by its number."""
    for field in fields(Use):
        yield _each(*_OF_JOB[field.name], {job: getattr(jobs[job].use, field.name) for job in jobs})
    numbers = {job: of.processes for job, of in jobs.items()}
    yield _each("processes", "Processes of the job on this node", "gauge", numbers)
    for index, (name, word) in enumerate((("read", "have read"), ("written", "wrote"))):
        counts = {job: of.flow and of.flow[index] for job, of in jobs.items()}
        yield _each(f"{name}_bytes_total", _BYTES.format(word), "counter", counts)
    yield Family(
        "plumbline_job_network_bytes_total",
        _NETWORK,
        ("hpc_job", "device", "direction"),
        {
            (job, device, direction): float(count)
            for job, of in jobs.items()
            for (device, direction), count in of.network.items()
        },
        "counter",
    )


def _each(name: str, text: str, kind: str, values: Mapping[str, float | None]) -> Family:
    samples: dict[Labels, float] = {
        (job,): float(value) for job, value in values.items() if value is not None
    }
    return Family(f"plumbline_job_{name}", text, ("hpc_job",), samples, kind)
