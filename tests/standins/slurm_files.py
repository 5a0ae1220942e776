"""One rich cluster, and Slurm's files as the roles write them there for a release of Slurm."""

from __future__ import annotations

from collections import ChainMap
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ansible.plugins.loader import add_all_plugin_dirs
from ansible.template import trust_as_template

from cluster.slurm.keys import File, Release, read
from playbooks.plugin_utils.site import Site
from tests.standins.inventories import REPOSITORY, hosts, worked_out, write

ROLES = REPOSITORY / "roles"
RELEASES: tuple[Release, ...] = ("22.05", "23.11", "24.11", "25.11", "26.05")

CPUS = {"sockets": 2, "cores_per_socket": 56, "threads_per_core": 2}


def cluster(release: Release) -> dict[str, Any]:
    """Two kinds of GPU nodes, MIG, backups of the controller and of accounting, CPUs, switches.

    The site wants what is newest, and sets of it what its release reads.
    """
    return {
        "slurm_controller": hosts(ctl1="192.0.2.1", ctl2="192.0.2.2"),
        "slurm_database": {"hosts": {"ctl1": {}, "ctl2": {}}},
        "slurm_login": hosts(login1="192.0.2.3"),
        "slurm_compute": {
            "children": {
                "gpu_h100": {
                    **hosts(gpu1="192.0.2.11", gpu2="192.0.2.12"),
                    "vars": {
                        "node_cpus": CPUS,
                        "node_memory_mb": 2000000,
                        "node_gpus": {"model": "h100_sxm", "count": 8},
                        "fabric": "ib_ndr400",
                        "node_switch": "leaf1",
                        "nvidia_driver_branch": 580,
                        "slurm_node_options": read(
                            {"Weight": 10, "Feature": "nvme,ib", "RestrictedCoresPerGPU": 2},
                            File.NODE,
                            release,
                        ),
                    },
                },
                "gpu_a100": {
                    **hosts(mig1="192.0.2.21", mig2="192.0.2.22"),
                    "vars": {
                        "node_cpus": {**CPUS, "cores_per_socket": 32},
                        "node_memory_mb": 1000000,
                        "node_gpus": {
                            "model": "a100_sxm",
                            "count": 8,
                            "mig": {"3g.20gb": 1, "2g.10gb": 2},
                        },
                        "fabric": "ib_hdr200",
                        "node_switch": "leaf2",
                        "nvidia_driver_branch": 580,
                    },
                },
                "cpu": {
                    **hosts(cpu1="192.0.2.31"),
                    "vars": {
                        "node_cpus": {**CPUS, "threads_per_core": 1},
                        "node_memory_mb": 500000,
                        "node_gpus": {"model": "none", "count": 0},
                        "fabric": "ethernet",
                        "node_switch": "eth1",
                    },
                },
            }
        },
    }


def variables(release: Release) -> dict[str, Any]:
    """What the site sets for all hosts."""
    return {
        "cluster_name": "golden",
        "cluster_database_backup": "ctl2",
        "pyxis_source": "none",
        "shared_storage_mounts": [{"path": "/shared", "kind": "external", "type": "lustre"}],
        "slurm_state_save_location": "/shared/slurmctld",
        "slurm_topology": {
            "plugin": "tree",
            "switches": {"spine": "leaf[1-2]", "core": "spine,eth1"},
        },
        "slurm_licenses": {"matlab": 10},
        "slurm_partitions": [
            {"name": "h100", "nodes": ["gpu_h100"], "default": True, "max_time": "2-00:00:00"},
            {
                "name": "mig",
                "nodes": ["gpu_a100"],
                "settings": read(
                    {"PriorityTier": 2, "MaxCPUsPerSocket": 16, "PowerDownOnIdle": "NO"},
                    File.PARTITION,
                    release,
                ),
            },
            {"name": "everything", "nodes": ["ALL"], "settings": {"Hidden": "YES"}},
        ],
        "slurm_settings": read(
            {
                "MessageTimeout": 30,
                "PriorityWeightAge": 5000,
                "PreemptType": "preempt/qos",
                "PreemptMode": "REQUEUE",
                # Power saving is a site's own: its programs know the machines.
                "SuspendProgram": "/opt/site/suspend",
                "ResumeProgram": "/opt/site/resume",
                "SuspendTime": 1800,
                "SuspendTimeout": 120,
                "ResumeTimeout": 900,
                "SuspendExcNodes": "gpu[1-2]",
                "SuspendExcParts": "h100",
                "SuspendExcStates": "DRAIN,MAINTENANCE",
                "LaunchType": "launch/slurm",
                "GetEnvTimeout": 10,
                "MaxBatchRequeue": 3,
                "DataParserParameters": "v0.0.42",
                "PrologTimeout": 120,
                "EpilogTimeout": 120,
                "CliFilterParameters": "cli_filter_lua_path=/etc/slurm/cli_filter.lua",
            },
            File.SLURM,
            release,
        ),
        "slurm_component_site": {
            "settings": read(
                {
                    "SlurmctldParameters": "idle_on_node_suspend,enable_stepmgr",
                    "PrologFlags": "Alloc,ForceRequeueOnFail",
                    "TaskPluginParam": "OOMKillStep",
                    "SchedulerParameters": "bf_continue,requeue_setup_env_fail,requeue_delay=60",
                },
                File.SLURM,
                release,
            ),
            "plugstack": ["optional /usr/lib/site/spank.so"],
            "prolog": [{"name": "10-site", "content": "#!/bin/sh\nexit 0\n"}],
        },
        "slurm_cgroup_settings": read(
            {
                "AllowedRAMSpace": 98,
                "CgroupAutomount": "yes",
                "SignalChildrenProcesses": "yes",
                "SystemdTimeout": 5000,
                "EnableExtraControllers": "io",
                "CgroupJobIdPaths": "yes",
            },
            File.CGROUP,
            release,
        ),
        "slurm_private_tmp": True,
        "slurm_private_tmp_folder": "/local/job-tmp",
        "slurm_private_tmp_settings": read(
            {"Shared": "true", "Dirs": "/tmp,/var/tmp,/dev/shm"}, File.JOB_CONTAINER, release
        ),
        "slurm_private_data": ["jobs", "usage"],
        "slurm_database_storage_host": "db.example.org",
        "slurm_database_password": "a-password-of-the-tests",
        "slurm_database_purge": read(
            {"PurgeJobAfter": "24months", "PurgeJobScriptAfter": "3months"}, File.SLURMDBD, release
        ),
        "slurm_database_settings": read(
            {"CommitDelay": 1, "DisableCoordDBD": "yes", "MaxPurgeLimit": 10000},
            File.SLURMDBD,
            release,
        ),
    }


@cache
def declared(release: Release) -> Site:
    """The cluster as preflight works it out."""
    with TemporaryDirectory() as folder:
        inventory = write(Path(folder), cluster(release), vars=variables(release))
        return worked_out(inventory)[0]


def policy(release: Release) -> dict[str, str]:
    """What a role has registered where APT would install this release."""
    return {"stdout": f"slurm:\n  Installed: (none)\n  Candidate: {release}.5-1\n"}


def of_role(inventory: Site, role: str, host: str, expression: str, **registered: Any) -> Any:
    """What an expression is for a role on a host, with what its tasks have registered."""
    folder = ROLES / role
    for plugins in (REPOSITORY / "playbooks", folder):
        add_all_plugin_dirs(str(plugins))
    runtime = {
        "ansible_managed": "Managed by Ansible; changes made here are lost.",
        "ansible_search_path": [str(folder)],
        **registered,
    }
    own, defaults = (
        inventory.read(folder / name / "main.yml") or {} for name in ("vars", "defaults")
    )
    scope = ChainMap(runtime, own, dict(inventory.values.hosts[host]), defaults)
    return inventory.render(scope, trust_as_template("{{ " + expression + " }}"))
