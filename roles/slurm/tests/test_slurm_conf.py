"""The files of /etc/slurm as a whole, as the templates and the role's variables make them."""

import re
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import filter_loader
from ansible.template import Templar, trust_as_template

from tests.standins.inventories import ready

ROLE = Path(__file__).resolve().parent.parent
SHARED = ROLE.parents[1] / "playbooks" / "filter_plugins"

GPU = {
    "cpus": {"sockets": 2, "cores_per_socket": 56, "threads_per_core": 2},
    "memory_mb": 2000000,
    "gpus": {"model": "h100_sxm", "count": 8},
}
SITE: dict[str, Any] = {
    "ansible_managed": "Managed by Ansible; changes made here are lost.",
    "slurm_roles": ["controller"],
    "slurm_cluster_name": "site",
    "slurm_controllers": [{"name": "ctl1", "address": "10.0.0.1"}],
    "slurm_nodes": [
        {"name": "gpu1", "address": "10.0.0.11", **GPU},
        {"name": "gpu2", "address": "10.0.0.12", **GPU},
    ],
}


@pytest.fixture(scope="module", autouse=True)
def filters() -> None:
    ready()
    filter_loader.add_directory(str(ROLE / "filter_plugins"))
    filter_loader.add_directory(str(SHARED))


def rendered(name: str, **site: Any) -> str:
    """A file's text without its comments; `name` is a key of __slurm_rendered_files."""
    variables: dict[str, Any] = {}
    loader = DataLoader()
    loader.set_basedir(str(ROLE))
    for file in ("defaults/main.yml", "vars/main.yml"):
        variables |= loader.load_from_file(file, trusted_as_template=True)
    template = (ROLE / "templates/etc/slurm" / f"{name}.j2").read_text()
    templar = Templar(loader, variables | SITE | site)
    text = str(templar.template(trust_as_template(template)) or "")  # nothing is None
    return "\n".join(line for line in text.splitlines() if line and not line.startswith("#"))


def test_slurm_conf_of_a_plain_site():
    assert (
        rendered("slurm.conf")
        == """\
ClusterName=site
SlurmctldHost=ctl1(10.0.0.1)
AuthType=auth/munge
DependencyParameters=kill_invalid_depend
DisableRootJobs=YES
Epilog=/etc/slurm/epilog.d/*
GresTypes=gpu
JobAcctGatherType=jobacct_gather/cgroup
LaunchParameters=use_interactive_step
MaxJobCount=100000
MessageTimeout=30
MpiDefault=pmix
PrivateData=jobs,usage
ProctrackType=proctrack/cgroup
Prolog=/etc/slurm/prolog.d/*
PrologFlags=Contain
PropagateResourceLimitsExcept=MEMLOCK,NOFILE
RebootProgram=/usr/sbin/reboot
ResumeTimeout=1800
ReturnToService=2
ScronParameters=enable
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmctldParameters=enable_configless
SlurmctldPidFile=/var/lib/slurm/run/slurmctld.pid
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmdTimeout=300
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
TaskPlugin=task/cgroup,task/affinity
Include nodes.conf
Include partitions.conf"""
    )


def test_how_long_a_reboot_may_take_is_a_sites_own_and_power_savings():
    """Where power saving starts nodes, the same setting says how soon a dead one is noticed."""
    assert "ResumeTimeout=" not in rendered("slurm.conf", slurm_settings={"SuspendProgram": "/x"})
    own = rendered("slurm.conf", slurm_settings={"ResumeTimeout": 600, "RebootProgram": "/opt/r"})
    assert "ResumeTimeout=600" in own
    assert "RebootProgram=/opt/r" in own
    both = {"SuspendProgram": "/x", "ResumeTimeout": 900}
    assert "ResumeTimeout=900" in rendered("slurm.conf", slurm_settings=both)


def test_what_differs_with_accounting_components_and_settings():
    plain = set(rendered("slurm.conf").splitlines())
    changed = set(
        rendered(
            "slurm.conf",
            slurm_accounting_host="ctl1",
            slurm_accounting_port=7031,
            slurm_config_delivery="files",
            slurm_components={
                "pyxis": {"plugstack": ["required x.so"], "settings": {"PrologFlags": "Alloc"}},
                "health": {"prolog": [{"name": "gpu", "content": "#!/bin/sh\n"}]},
                "mig": {"task_prolog": [{"name": "mig", "content": "#!/bin/sh\n"}]},
            },
            slurm_settings={"SlurmdTimeout": 60, "mpidefault": ""},
        ).splitlines()
    )
    assert changed - plain == {
        "AccountingStorageHost=ctl1",
        "AccountingStoragePort=7031",
        "AccountingStorageTRES=gres/gpu",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "PriorityDecayHalfLife=14-0",
        "PriorityFlags=MAX_TRES",
        "PriorityMaxAge=7-0",
        "PriorityType=priority/multifactor",
        "PriorityWeightAge=1000",
        "PriorityWeightAssoc=1000",
        "PriorityWeightFairshare=10000",
        "PriorityWeightPartition=1000",
        "PriorityWeightQOS=10000",
        "PrologFlags=Contain,Alloc",
        "SlurmdTimeout=60",
        "TaskProlog=/etc/slurm/bin/task_prolog",
    }
    assert plain - changed == {
        "MpiDefault=pmix",
        "PrologFlags=Contain",
        "SlurmctldParameters=enable_configless",
        "SlurmdTimeout=300",
    }


def test_the_other_files():
    assert rendered("nodes.conf") == (
        "NodeName=gpu[1-2] NodeAddr=10.0.0.[11-12] Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 "
        "RealMemory=2000000 Gres=gpu:h100_sxm:8"
    )
    assert rendered("partitions.conf") == (
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefMemPerCPU=8928 State=UP"
    )
    assert rendered("gres.conf") == (
        "NodeName=gpu[1-2] Name=gpu Type=h100_sxm File=/dev/nvidia[0-7]"
    )
    confined = ("Cores", "RAMSpace", "SwapSpace", "Devices")
    assert rendered("cgroup.conf").splitlines() == [f"Constrain{name}=yes" for name in confined]


def test_slurmd_leaves_cgroups_alone_where_nothing_is_constrained():
    text = rendered("cgroup.conf", slurm_constrain=False, __slurm_release="26.05.5")
    assert text.splitlines()[-2:] == ["ConstrainDevices=no", "CgroupPlugin=disabled"]
    text = rendered("cgroup.conf", slurm_constrain=False, __slurm_release="23.11.4")
    assert "CgroupPlugin" not in text


def test_weights_are_the_sites_to_change():
    lines = rendered(
        "slurm.conf",
        slurm_accounting_host="ctl1",
        slurm_settings={"PriorityWeightAge": 5, "PriorityType": "priority/basic"},
    ).splitlines()
    assert {"PriorityWeightAge=5", "PriorityType=priority/basic"} <= set(lines)
    assert "PriorityWeightAge=1000" not in lines


def test_licences_and_topology_are_in_slurm_conf():
    nodes = [{**node, "switch": "leaf1"} for node in SITE["slurm_nodes"]]
    site = {"slurm_licenses": {"matlab": 10, "ansys": 4}, "slurm_topology": {"plugin": "tree"}}
    lines = rendered("slurm.conf", slurm_nodes=nodes, **site).splitlines()
    assert {"Licenses=matlab:10,ansys:4", "TopologyPlugin=topology/tree"} <= set(lines)
    assert rendered("topology.conf", slurm_nodes=nodes, **site) == (
        "SwitchName=leaf1 Nodes=gpu[1-2]"
    )
    assert rendered("topology.conf") == ""


def test_energy_and_expedited_jobs_are_a_sites_to_ask_for():
    plain = rendered("slurm.conf")
    assert not any(word in plain for word in ("Energy", "AcctGatherFrequency", "expedited"))
    site = {"slurm_energy": ["rapl"], "slurm_expedited_requeue": True, "slurm_request_rate": 0}
    installed = {"stdout": "slurm-client:\n  Installed: 25.11.2\n  Candidate: 25.11.2\n"}
    site["__slurm_controller_versions"] = installed
    lines = rendered("slurm.conf", **site).splitlines()
    assert {
        "AcctGatherEnergyType=acct_gather_energy/rapl",
        "AcctGatherNodeFreq=30",
        "JobAcctGatherFrequency=task=30,energy=30",
        "SlurmctldParameters=enable_configless,enable_expedited_requeue",
    } <= set(lines)
    # A site has the last word on how often.
    site["slurm_settings"] = {"JobAcctGatherFrequency": "task=10,energy=60"}
    assert "JobAcctGatherFrequency=task=10,energy=60" in rendered("slurm.conf", **site)


def test_a_file_for_nothing_is_empty():
    parts = {"pyxis": {"plugstack": ["required x.so"]}}
    assert rendered("plugstack.conf") == ""
    assert rendered("plugstack.conf", slurm_components=parts) == "required x.so"
    assert rendered("nodes.conf", slurm_nodes=[]) == ""


@pytest.mark.parametrize(
    ("site", "lines"),
    [
        ({"__slurm_release": "24.11.5"}, {"IgnoreFileConfigJson=true", "RunTimeRun=REFUSES"}),
        ({"__slurm_release": "22.05.8"}, {"RunTimeRun=REFUSES"}),
        ({"slurm_oci_settings": {"RunTimeRun": '"runc run %n"'}}, {'RunTimeRun="runc run %n"'}),
    ],
)
def test_a_bundle_is_run_by_a_sites_runtime_or_refused(site, lines):
    text = rendered("oci.conf", **site)
    refuses = re.sub(r'="echo .* >&2; exit 1"$', "=REFUSES", text, flags=re.MULTILINE)
    assert set(refuses.splitlines()) == lines
