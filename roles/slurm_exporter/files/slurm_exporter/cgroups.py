"""Jobs that run on this node, and what each of them uses: what the kernel counts for their cgroups.

Where Slurm has them (https://slurm.schedmd.com/cgroup_v2.html, cgroup.conf(5)):

    v1               CONTROLLER/slurm/uid_UID/job_ID
    v2 before 26.05  system.slice/slurmstepd.scope/job_ID
    v2 from 26.05 on system.slice/slurmstepd.scope/SLUID, or as before with CgroupJobIdPaths=yes

A SLUID does not say the job's number. The title of its slurmstepd does, which is root's: what a
user writes, such as a process' environment, is never asked whose it is. The scope's name may begin
with that of the node (--enable-multiple-slurmd), and CgroupSlice may put it elsewhere.

What is bytes here is bytes, and times are seconds. A job may end at any moment: what is gone while
it is read is no error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.exporter import Failed

_JOB = re.compile(r"job_(\d+)")
# src/slurmd/slurmstepd/slurmstepd.c names the process so.
_TITLE = re.compile(rb"slurmstepd: \[(\d+)\.")
# v1 writes 2^63 rounded down to a page where there is no limit.
_NO_LIMIT = 2**62
# The controllers of v1, each with a tree of its own: what it is asked for. proctrack needs freezer.
_CONTROLLERS = ("freezer", "cpuacct", "memory", "cpuset")


@dataclass(frozen=True)
class Host:
    """Where things are on this host."""

    cgroup: Path = Path("/sys/fs/cgroup")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


@dataclass(frozen=True)
class JobCgroup:
    """A job's folders: of v2 one, under every controller's name; of v1 one for each controller."""

    job: str
    folders: Mapping[str, Path]

    @property
    def processes(self) -> tuple[int, ...]:
        folder = self.folders["freezer"]
        pids: set[int] = set()
        with suppress(OSError):
            for path in folder.glob("**/cgroup.procs"):
                with suppress(OSError):
                    pids |= {int(word) for word in path.read_text(encoding="ascii").split()}
        return tuple(sorted(pids))


@dataclass(frozen=True)
class Use:
    """What a job uses on this node, since it began there or at this moment; None is not counted.

    memory_bytes  without the file cache that the kernel can take back at once, as `kubectl top`
    cpus          that the job may run on
    """

    cpu_s: float | None
    cpus: int | None
    memory_bytes: int | None
    memory_peak_bytes: int | None
    memory_limit_bytes: int | None
    oom_kills: int | None


def jobs(host: Host) -> list[JobCgroup]:
    """Those with a cgroup now. Raises Failed where Slurm has no place for them at all.

    With v1 the first job makes that place; with v2 slurmd does.
    """
    scopes = [
        scope
        for pattern in ("*.slice/*slurmstepd.scope", "*.slice/*.slice/*slurmstepd.scope")
        for scope in sorted(host.cgroup.glob(pattern))
    ]
    if scopes:
        return [job for scope in scopes for job in _of_scope(host, scope)]
    trees = {
        name: sorted(host.cgroup.glob(f"{name}/slurm*"))
        for name in _CONTROLLERS
        if (host.cgroup / name).is_dir()
    }
    if not trees:
        raise Failed(
            f"{host.cgroup} has no cgroup of Slurm's: slurmd does not run, or confines no jobs"
        )
    return list(_of_trees(trees))


def _of_scope(host: Host, scope: Path) -> Iterator[JobCgroup]:
    for folder in sorted(_folders(scope)):
        steps = [step for step in _folders(folder) if step.name.startswith("step_")]
        match = _JOB.fullmatch(folder.name)
        if number := match[1] if match else _titled(host, steps):
            yield JobCgroup(number, dict.fromkeys(_CONTROLLERS, folder))


def _titled(host: Host, steps: list[Path]) -> str:
    """The number that a job's slurmstepd is titled with; nothing where there is none (yet)."""
    for step in steps:
        with suppress(OSError):
            for pid in (step / "slurm" / "cgroup.procs").read_text(encoding="ascii").split():
                title = (host.proc / pid / "cmdline").read_bytes()
                if match := _TITLE.match(title):
                    return match[1].decode("ascii")
    return ""


def _of_trees(trees: Mapping[str, list[Path]]) -> Iterator[JobCgroup]:
    found: dict[str, dict[str, Path]] = {}
    for name, roots in trees.items():
        for root in roots:
            for folder in sorted(root.glob("uid_*/job_*")):
                if match := _JOB.fullmatch(folder.name):
                    found.setdefault(match[1], {})[name] = folder
    for number, folders in found.items():
        somewhere = next(iter(folders.values()))
        yield JobCgroup(number, {"freezer": somewhere, **folders})


def _folders(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if entry.is_dir()]
    except OSError:
        return []


def use(cgroup: JobCgroup) -> Use:
    folder = cgroup.folders["freezer"]
    unified = (folder / "cgroup.controllers").exists()
    return _use_v2(folder) if unified else _use_v1(cgroup.folders)


def _use_v2(folder: Path) -> Use:
    cpu = _number(_pairs(folder / "cpu.stat").get("usage_usec"))
    return Use(
        cpu_s=None if cpu is None else cpu / 1e6,
        cpus=_cpus(_text(folder / "cpuset.cpus.effective")),
        memory_bytes=_working_set(
            _number(_text(folder / "memory.current")),
            _pairs(folder / "memory.stat").get("inactive_file"),
        ),
        memory_peak_bytes=_number(_text(folder / "memory.peak")),  # from Linux 5.19 on
        memory_limit_bytes=_number(_text(folder / "memory.max")),  # a word where there is none
        oom_kills=_number(_pairs(folder / "memory.events").get("oom_kill")),
    )


def _use_v1(folders: Mapping[str, Path]) -> Use:
    nowhere = Path("/nonexistent")
    memory = folders.get("memory", nowhere)
    cpu = _number(_text(folders.get("cpuacct", nowhere) / "cpuacct.usage"))
    limit = _number(_text(memory / "memory.limit_in_bytes"))
    return Use(
        cpu_s=None if cpu is None else cpu / 1e9,
        cpus=_cpus(_text(folders.get("cpuset", nowhere) / "cpuset.cpus")),
        memory_bytes=_working_set(
            _number(_text(memory / "memory.usage_in_bytes")),
            _pairs(memory / "memory.stat").get("total_inactive_file"),
        ),
        memory_peak_bytes=_number(_text(memory / "memory.max_usage_in_bytes")),
        memory_limit_bytes=limit if limit is not None and limit < _NO_LIMIT else None,
        oom_kills=_number(_pairs(memory / "memory.oom_control").get("oom_kill")),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _pairs(path: Path) -> dict[str, str]:
    """Of lines such as `usage_usec 4711`."""
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _working_set(current: int | None, inactive: str | None) -> int | None:
    return None if current is None else max(0, current - (_number(inactive) or 0))


def _cpus(ranges: str) -> int | None:
    """How many are in `0-3,8`."""
    total = 0
    for part in filter(None, ranges.split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            return None
        total += int(match[2] or match[1]) - int(match[1]) + 1
    return total or None


def written_and_read(host: Host, pids: tuple[int, ...]) -> tuple[int, int]:
    """Bytes that processes had written and read, by their calls: files of all filesystems, pipes.

    What a child did is its parent's when the parent has waited for it (wait_task_zombie in
    kernel/exit.c), so the sum falls only where a process ends that nobody waits for. Raises Failed
    where we may not ask: a process that is not told would count as one that does nothing.
    """
    read = written = 0
    for pid in pids:
        path = host.proc / str(pid) / "io"
        try:
            text = path.read_text(encoding="ascii")
        except PermissionError as error:
            raise Failed(f"{path} cannot be read: {error.strerror}") from None
        except OSError:  # it has ended
            continue
        for line in text.splitlines():
            name, _, value = line.partition(": ")
            read += int(value) if name == "rchar" else 0
            written += int(value) if name == "wchar" else 0
    return read, written


def network(host: Host) -> dict[str, tuple[int, int]]:
    """Device -> bytes received and sent, of network cards and of InfiniBand's ports.

    What is made of others, such as a bond or a VLAN, would count the same bytes again.
    """
    counts: dict[str, tuple[int, int]] = {}
    for device in sorted((host.sys / "class/net").glob("*/device")):
        statistics = device.parent / "statistics"
        received = _number(_text(statistics / "rx_bytes"))
        sent = _number(_text(statistics / "tx_bytes"))
        if received is not None and sent is not None:
            counts[device.parent.name] = received, sent
    for port in sorted((host.sys / "class/infiniband").glob("*/ports/*/counters")):
        received = _number(_text(port / "port_rcv_data"))
        sent = _number(_text(port / "port_xmit_data"))
        if received is not None and sent is not None:
            # In words of four bytes: https://docs.kernel.org/ABI/testing/sysfs-class-infiniband
            name = f"{port.parents[2].name}:{port.parent.name}"
            counts[name] = received * 4, sent * 4
    return counts
