"""Which releases of Slurm read which keys of its files: slurm.conf, gres.conf and the others.

A key that a release does not know ends its daemons; one that it reads no more, and most entries of
lists that it does not know, it only passes over. So what a role writes of its own accord is left
out there (`read`), and what a site sets is refused, with what to set instead (`unread`).

The table has what a site with GPUs is likely to set, and what we write, where not all releases
from 22.05 to 26.05 read it. What is not in it passes: of slurm.conf Slurm's own parser has the last
word. Its sources are NEWS (up to 24.11) and CHANGELOG of the release that is named, the manual
pages, and the parsers of 22.05.8, 24.11.5 and 26.05.5 (tests/test_slurm_keys.py).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# "24.11": of fixed width, so that releases sort as words do.
Release = str
NONE = ""  # of a bound, and of a host whose release is not known


class File(str, enum.Enum):
    """What a key is in: a file, or the lines of nodes and partitions in slurm.conf."""

    def __str__(self) -> str:  # as Python 3.11's StrEnum
        return str(self.value)

    SLURM = "slurm.conf"
    NODE = "NodeName"
    PARTITION = "PartitionName"
    GRES = "gres.conf"
    TOPOLOGY = "topology.conf"
    CGROUP = "cgroup.conf"
    JOB_CONTAINER = "job_container.conf"
    SLURMDBD = "slurmdbd.conf"


@dataclass(frozen=True, slots=True)
class Key:
    """`Name`, or `Name=value` where one value is meant, or one entry of a list."""

    file: File
    name: str
    instead: str  # what to do where it is not read
    source: str
    since: Release = NONE  # the first release that reads it
    until: Release = NONE  # the last one

    def read_by(self, release: Release) -> bool:
        return self.since <= release and (not self.until or release <= self.until)

    @property
    def readers(self) -> str:
        """`25.11 and newer`, `23.02 and older`, `23.11 to 25.11`."""
        if self.since and self.until:
            return f"{self.since} to {self.until}"
        return f"{self.since} and newer" if self.since else f"{self.until} and older"

    def means(self, name: str, value: str) -> bool:
        """Whether this is the setting, or the entry of a list, `name=value`."""
        mine, _, wanted = self.name.lower().partition("=")
        return name.lower() == mine and (not wanted or value.lower().partition("=")[0] == wanted)


Instead = Mapping[str, str]  # name -> what to do where it is not read


def _since(release: Release, source: str, **files: Instead) -> Iterator[Key]:
    for file, names in files.items():
        for name, instead in names.items():
            yield Key(File[file], name, instead, source, since=release)


def _until(release: Release, source: str, **files: Instead) -> Iterator[Key]:
    for file, names in files.items():
        for name, instead in names.items():
            yield Key(File[file], name, instead, source, until=release)


NO_KMEM = "remove it, ConstrainRAMSpace confines the kernel's memory too"
NOTHING_LIKE_IT = "remove it, older releases have nothing like it"

TABLE: tuple[Key, ...] = (
    *_until(
        "21.08",
        "NEWS 22.05.0rc1",
        CGROUP={
            "AllowedDevicesFile": "remove it, a job has all devices that are no GRES",
            "CgroupReleaseAgentDir": "remove it, Slurm removes its cgroups itself",
        },
    ),
    *_since(
        "22.05",
        "NEWS 22.05.0rc1",
        SLURMDBD={"AllowNoDefAcct": "remove it, and give each user a default account"},
    ),
    *_until(
        "22.05",
        "NEWS 23.02.0rc1",
        SLURM={"LaunchType": "remove it, srun starts steps by itself"},
    ),
    *_since(
        "23.02",
        "NEWS 23.02.0rc1, 23.02.1 (EnableControllers), 23.02.7 (DisableGPUAcct)",
        SLURM={
            "HealthCheckNodeState=NONDRAINED_IDLE": "set IDLE",
            "JobAcctGatherParams=DisableGPUAcct": NOTHING_LIKE_IT,
            "MaxBatchRequeue": "remove it, a job is held after 5 times",
            "PreemptParameters": "set such options in SchedulerParameters",
            "PrologFlags=ForceRequeueOnFail": "remove it, and submit jobs with --requeue",
            "SuspendExcStates": "set SuspendExcNodes or SuspendExcParts",
        },
        PARTITION={
            "MaxCPUsPerSocket": "set MaxCPUsPerNode",
            "PowerDownOnIdle": "set SuspendTime of the partition",
        },
        CGROUP={"EnableControllers": "remove it, systemd hands the controllers down"},
    ),
    *_since(
        "23.02",
        "job_container.conf(5) of 23.02; the plugin of 22.05.8 ends slurmd",
        JOB_CONTAINER={
            "Dirs": "remove it, /tmp and /dev/shm are private",
            "Shared": "remove it, and mount filesystems at boot, not on demand",
        },
    ),
    *_until(
        "23.02",
        "NEWS 23.11.0rc1",
        SLURM={
            "CommunicationParameters=NoAddrCache": "remove it",
            "RoutePlugin=route/topology": "set TopologyParam to RouteTree",
            "SelectType=select/cons_res": "set select/cons_tres, or nothing: the role does",
            "SlurmctldParameters=cloud_reg_addrs": "remove it, it is so by default",
        },
        CGROUP={
            "CgroupAutomount": "remove it, systemd mounts the cgroups",
            "AllowedKmemSpace": NO_KMEM,
            "ConstrainKmemSpace": NO_KMEM,
            "MaxKmemPercent": NO_KMEM,
            "MinKmemSpace": NO_KMEM,
        },
    ),
    *_since(
        "23.11",
        "NEWS 23.11.0rc1, 23.11.5 (auth/slurm), 23.11.6 (use_client_ids)",
        SLURM={
            "AuthInfo=use_client_ids": "remove it, and have the users on the controllers too",
            "AuthType=auth/slurm": "set auth/munge, or nothing: the role does",
            "TopologyParam=RouteTree": "set RoutePlugin to route/topology",
            "TopologyParam=RoutePart": NOTHING_LIKE_IT,
            "TopologyPlugin=topology/block": "set slurm_topology.plugin to tree",
        },
        GRES={"AutoDetect=nrt": "name the devices with File"},
        CGROUP={"SignalChildrenProcesses": NOTHING_LIKE_IT},
    ),
    *_since(
        "24.05",
        "NEWS 24.05.0rc1, 24.05.1 (nvidia_imex)",
        SLURM={
            "PrologFlags=RunInJob": "remove it, prolog and epilog run outside the job's cgroup",
            "SlurmctldParameters=enable_stepmgr": "remove it, slurmctld manages all steps",
            "SlurmctldParameters=max_powered_nodes": "bound it in ResumeProgram",
            "SlurmdParameters=contain_spank": NOTHING_LIKE_IT,
            "SwitchType=switch/nvidia_imex": "set nvidia_fabric_imex_channels to shared",
        },
        NODE={"RestrictedCoresPerGPU": "remove it, or keep CPUs for GPU jobs with MaxCPUsPerNode"},
        PARTITION={"ExclusiveTopo": NOTHING_LIKE_IT},
        TOPOLOGY={"BlockSizes": "remove it, the first block's size is that of all"},
        CGROUP={
            "CgroupPlugin=disabled": "set slurm_constrain to false",
            "SystemdTimeout": "remove it, slurmd waits a second for systemd",
        },
        SLURMDBD={"DisableCoordDBD": "remove it, and make nobody a coordinator"},
    ),
    *_since(
        "24.11",
        "NEWS 24.11.0rc1",
        SLURM={
            "DataParserParameters": "name the version with each --json",
            "SchedulerParameters=bf_allow_magnetic_slot": NOTHING_LIKE_IT,
            "SlurmctldParameters=ignore_constraint_validation": NOTHING_LIKE_IT,
            "TaskPluginParam=OOMKillStep": NOTHING_LIKE_IT,
        },
        GRES={"AutoDetect=nvidia": "name the devices with File, or set nvml"},
        JOB_CONTAINER={"EntireStepInNS": NOTHING_LIKE_IT},
    ),
    *_until(
        "24.11",
        "CHANGELOG 25.05.0rc1",
        SLURM={
            "GetEnvTimeout": "remove it, a user's environment has 120 seconds",
            "SchedulerParameters=no_env_cache": "remove it, nothing is cached",
            "SchedulerParameters=requeue_setup_env_fail": "remove it, such a job is always held",
        },
    ),
    *_since(
        "25.05",
        "CHANGELOG 25.05.0rc1",
        SLURM={
            "CommunicationParameters=host_unreach_retry_count": NOTHING_LIKE_IT,
            "EpilogTimeout": "set PrologEpilogTimeout, which is for both",
            "PriorityFlags=MAX_TRES_GRES": "set MAX_TRES",
            "PrologTimeout": "set PrologEpilogTimeout, which is for both",
            "SchedulerParameters=requeue_on_resume_failure": "submit jobs with --requeue",
            "TaskPluginParam=SlurmdSpecOverride": "set CpuSpecList and MemSpecLimit of the nodes",
            "TLSType=tls/s2n": "remove it, and keep Slurm's ports to a network of its own",
        },
        PARTITION={"Topology": "set one TopologyPlugin for the cluster"},
        CGROUP={"EnableExtraControllers": NOTHING_LIKE_IT},
    ),
    *_until(
        "25.05",
        "CHANGELOG 25.11.0rc1, job_container.conf(5) of 25.11",
        SLURM={
            "AccountingStorageUser": "remove it, slurmdbd alone has an account",
            "JobContainerType=job_container/tmpfs": "set NamespaceType to namespace/tmpfs",
        },
    ),
    *_since(
        "25.11",
        "CHANGELOG 25.11.0rc1, 25.11.1 (no_file_cache)",
        SLURM={
            "CliFilterParameters": "put cli_filter.lua beside slurm.conf",
            "CommunicationParameters=disable_http": "remove it, older daemons answer no HTTP",
            "HealthCheckNodeState=START_ONLY": "set ANY",
            "JobAcctGatherParams=no_file_cache": NOTHING_LIKE_IT,
            "JobCompPassScript": "set JobCompPass",
            "MetricsType": "remove it, or set slurm_exporter_openmetrics to false",
            "NamespaceType": "set JobContainerType to job_container/tmpfs",
            "SchedulerParameters=requeue_delay": NOTHING_LIKE_IT,
            "SlurmctldParameters=enable_async_reply": NOTHING_LIKE_IT,
            "SlurmctldParameters=reconfig_on_restart": "run scontrol reconfigure after a restart",
        },
        NODE={"Parameters": "set SlurmdParameters for all nodes"},
        CGROUP={"CgroupSlice": "remove it, the slice is system.slice"},
        SLURMDBD={
            "DisableArchiveCommands": NOTHING_LIKE_IT,
            "MaxPurgeLimit": "remove it, the limit is 50000",
            "StoragePassScript": "set slurm_database_password",
        },
    ),
    *_since(
        "26.05",
        "CHANGELOG 26.05.0rc1, cgroup.conf(5), slurm.conf(5)",
        SLURM={
            "HealthCheckNodeState=REBOOT_ONLY": "set ANY",
            "HealthCheckTimeout": "remove it, the program has 60 seconds",
            "MetricsAuthUsers": "keep others from slurmctld's port",
            "MetricsParameters": NOTHING_LIKE_IT,
            "PowerAction": "set SuspendProgram and ResumeProgram",
            "TopologyPlugin=topology/ring": "set topology/tree or topology/block",
            "TopologyPlugin=topology/torus3d": "set topology/tree or topology/block",
        },
        NODE={"SuspendTime": "set SuspendTime of a partition"},
        PARTITION={"Exclusive": "set ExclusiveUser, or OverSubscribe to EXCLUSIVE"},
        GRES={"AutoDetect=full": "set the one that fits, such as nvml"},
        CGROUP={"CgroupJobIdPaths": "remove it, paths have the job's number"},
        SLURMDBD={
            "ArchiveJobEnv": "set ArchiveJobs",
            "ArchiveJobScript": "set ArchiveJobs",
            "DisableRollups": NOTHING_LIKE_IT,
            "Parameters=PreserveCaseResource": NOTHING_LIKE_IT,
            "PurgeJobEnvAfter": "set PurgeJobAfter, which is for all of a job",
            "PurgeJobScriptAfter": "set PurgeJobAfter, which is for all of a job",
        },
    ),
    Key(
        File.SLURM,
        "SchedulerParameters=enable_job_state_cache",
        "remove it",
        "NEWS 23.11.6, CHANGELOG 26.05.0rc1",
        since="23.11",
        until="25.11",
    ),
)


def release(policy: str) -> Release:
    """Slurm's release from `apt-cache policy`: installed, else what would be; NONE if neither."""
    for kind in ("Installed", "Candidate"):
        if match := re.search(rf"^\s*{kind}: (?:\d+:)?(\d+)\.(\d+)", policy, re.MULTILINE):
            return f"{int(match[1]):02d}.{int(match[2]):02d}"
    return NONE


def oldest_release(look: str) -> Release:
    """The oldest of the package's release and of those in lines `slurmd 24.11.5`, from sinfo.

    While a cluster is upgraded the nodes' slurmd are older, and read the controller's files.
    """
    running = re.findall(r"^slurmd (\d+)\.(\d+)", look, re.MULTILINE)
    releases = [release(look), *(f"{int(year):02d}.{int(month):02d}" for year, month in running)]
    return min(filter(None, releases), default=NONE)


def read(settings: Mapping[str, Any], file: str, installed: Release) -> dict[str, Any]:
    """The settings without what the release does not read; of a list without such entries.

    Where the release is not known, what only some releases read is left out.
    """
    kept = {}
    for name, value in settings.items():
        entries = _entries(value)
        left = [entry for entry in entries if not _unread_by(installed, file, name, entry)]
        if len(left) == len(entries):
            kept[name] = value
        elif left:
            kept[name] = ",".join(left)
    return kept


def unread(
    settings: Mapping[str, Any], file: str, installed: Release, where: str, host: str
) -> list[str]:
    """A sentence for each setting that the release of a host does not read."""
    keys = {
        (name, key)
        for name, value in settings.items()
        for entry in _entries(value)
        if installed and (key := _unread_by(installed, file, name, entry))
    }
    return sorted(
        f"{where}.{name}: {host} has Slurm {installed}, and only {key.readers} read {key.name}; "
        f"{key.instead}."
        for name, key in keys
    )


def _unread_by(installed: Release, file: str, name: str, entry: str) -> Key | None:
    """The key of the table that the entry is, where the release does not read it."""
    ours = (key for key in TABLE if key.file == file and key.means(name, entry))
    return next((key for key in ours if not installed or not key.read_by(installed)), None)


def _entries(value: Any) -> list[str]:
    """The entries of a list, or the one value; none for what removes a setting, an empty one."""
    if isinstance(value, (list, tuple)):
        return [entry for item in value for entry in _entries(item)]
    return [word.strip() for word in str("" if value is None else value).split(",") if word.strip()]
