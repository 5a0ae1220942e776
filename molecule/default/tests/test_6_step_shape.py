"""What a real Slurm gives to the validator's jobs on nodes with more CPUs than these have.

A second slurmctld and slurmd on the cluster's nodes, on ports of their own, believe what is
declared (two sockets, eight cores, two threads) instead of what is there. Nothing computes: each
job prints what Slurm gave it.
"""

from __future__ import annotations

import re
import shlex

import pytest

from cluster import declaration
from validation import allocations, plan, suites
from validation.slurm import job as jobs

CPUS, GPUS, RANKS, MEMORY_MB = 32, 8, 16, 64000
GRES = f"gpu:h100_sxm:{GPUS}"
FOLDER = "/tmp/shape"  # of root's, on each of the nodes

SLURM_CONF = f"""\
ClusterName=shape
SlurmctldHost=ctl1
SlurmctldPort=7817
SlurmdPort=7818
AuthType=auth/munge
SlurmUser=root
MpiDefault=none
GresTypes=gpu
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation={FOLDER}/state
SlurmdSpoolDir={FOLDER}/spool
SlurmctldPidFile={FOLDER}/slurmctld.pid
SlurmdPidFile={FOLDER}/slurmd.pid
SlurmctldLogFile={FOLDER}/slurmctld.log
SlurmdLogFile={FOLDER}/slurmd.log
NodeName=DEFAULT Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory={MEMORY_MB} Gres={GRES}
NodeName=big1 NodeHostname=gpu1 NodeAddr=gpu1
NodeName=big2 NodeHostname=gpu2 NodeAddr=gpu2
PartitionName=shape Nodes=big[1-2] Default=YES DefMemPerCPU=1000
"""
DAEMONS = {
    "ctl1": "slurmctld",
    "gpu1": "slurmd -N big1",
    "gpu2": "slurmd -N big2",
}

# Stands in the place of the payload's Python; its arguments do not matter. On gpu1, where it is.
SHOW = """\
#!/bin/sh
[ "$SLURM_PROCID" = 0 ] || exit 0
echo "PerTask=$SLURM_CPUS_PER_TASK"
scontrol show step "$SLURM_JOB_ID.$SLURM_STEP_ID"
"""


@pytest.fixture(scope="module")
def big(operator):
    """Runs a command on gpu1 against the second Slurm; its output."""

    def root(name, command):
        return operator.virtual_cluster("ssh", name, f"sudo bash -c {shlex.quote(command)}")

    def stop():
        for name, daemon in DAEMONS.items():
            pid = f"{FOLDER}/{daemon.split()[0]}.pid"
            root(name, f"[ ! -e {pid} ] || kill $(cat {pid})")

    # Nothing is confined. Slurm 22.05 knows no such word, and needs none.
    cgroup = "" if operator.system == "debian12" else "CgroupPlugin=disabled\n"
    try:
        for name, daemon in DAEMONS.items():
            gres = f"Name=gpu Type=h100_sxm File={FOLDER}/gpu[0-7]\n"
            files = {"slurm.conf": SLURM_CONF, "gres.conf": gres}
            files |= {"cgroup.conf": cgroup, "show": SHOW}
            write = "".join(
                f"printf %s {shlex.quote(text)} >{FOLDER}/{path}\n" for path, text in files.items()
            )
            result = root(
                name,
                f"set -e; rm -rf {FOLDER}; mkdir -p {FOLDER}/state {FOLDER}/spool\n{write}"
                f"chmod 755 {FOLDER}/show; touch {FOLDER}/gpu{{0..7}}\n"
                f"{daemon} -f {FOLDER}/slurm.conf",
            )
            assert result.returncode == 0, result.stdout + result.stderr

        def run(*words):
            command = (
                f"export SLURM_CONF={FOLDER}/slurm.conf; cd /tmp; timeout 60 {shlex.join(words)}"
            )
            done = root("gpu1", command)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        for _ in range(30):
            shown = run("sinfo", "-h", "-N", "-o", "%N %T %c %z %G")
            if shown.count("idle") == 2:
                break
        assert shown.split() == [
            *("big1", "idle", "32", "2:8:2", GRES),
            *("big2", "idle", "32", "2:8:2", GRES),
        ]
        yield run
    finally:
        stop()


@pytest.fixture(scope="module")
def cluster_plan():
    """The plan of the shipped suite for these nodes, as if their GPUs were real ones."""
    node = {
        "cpus": CPUS,
        "memory_mb": MEMORY_MB,
        "gpus": {"model": "h100_sxm", "count": GPUS},
        "fabric": "ib_ndr400",
    }
    document = {
        "schema": 1,
        "cluster": "shape",
        "login": ["gpu1"],
        "controller": ["ctl1"],
        "python": f"{FOLDER}/show",
        "partitions": [{"name": "shape", "nodes": ["big1", "big2"], "default": True}],
        "nodes": [{"name": name, **node} for name in ("big1", "big2")],
    }
    declared = declaration.parse(document, "test")
    return plan.make(declared, suites.load("quick"), plan.Selection(), "20260101T000000Z-shape")


def job(cluster_plan, name):
    return next(job for job in cluster_plan.jobs if job.name == name)


def allocated(shown):
    """CPUs for each task, then the step's CPUs, memory and nodes."""
    per_task = re.search(r"PerTask=(\d*)", shown)
    tres = re.search(r"TRES=cpu=(\d+),mem=([\w.]+),node=(\d+)", shown)
    assert per_task is not None, shown
    assert tres is not None, shown
    return per_task[1], *tres.groups()


EVERYTHING = ("4", str(2 * CPUS), "125G", "2")  # 2 x 64000 MB


@pytest.mark.parametrize("name", ["all_reduce", "ddp", "pipeline"])
def test_a_cluster_job_is_given_all_of_its_nodes(big, cluster_plan, name):
    cluster_job = job(cluster_plan, name)
    assert (cluster_job.ranks, cluster_job.config["cpus_per_rank"]) == (RANKS, 4)
    shown = big(*jobs.command(cluster_plan.run_id, cluster_job, cluster_plan.python))
    assert allocated(shown) == EVERYTHING, shown
    assert f"Tasks={RANKS} " in shown
    assert re.search(rf"gres[/:]{GRES}\b", shown), shown  # 22.05 writes a colon


def test_so_is_a_step_of_an_allocation(big, cluster_plan):
    lane = list(cluster_plan.groups[0].jobs)
    (allocation,) = allocations.share([lane], frozenset(("big1", "big2")), 64)
    step = jobs.step_command(cluster_plan.run_id, lane[0], cluster_plan.python)
    salloc = jobs.allocation_command(cluster_plan.run_id, allocation)
    inside = ["bash", "-c", f"{step[0]} --jobid=$SLURM_JOB_ID {shlex.join(step[1:])}"]
    # In the place of the command that holds it for the launcher.
    shown = big(*salloc[: salloc.index("sh")], *inside)
    assert allocated(shown) == EVERYTHING, shown


def test_a_node_job_takes_one_cpu_and_leaves_the_rest_to_others(big, cluster_plan):
    shown = big(
        *jobs.command(cluster_plan.run_id, job(cluster_plan, "node-big1"), cluster_plan.python)
    )
    _, cpus, _, nodes = allocated(shown)
    assert (int(cpus) <= 2, nodes) == (True, "1"), shown  # a core's two threads


def test_without_asking_a_step_is_given_a_cpu_for_each_rank(big, cluster_plan):
    """What the jobs asked for once: this Slurm does tell the difference."""
    command = [
        word
        for word in jobs.command(cluster_plan.run_id, job(cluster_plan, "ddp"), cluster_plan.python)
        if not word.startswith(("--cpus-per-task=", "--mem="))
    ]
    assert allocated(big(*command))[1] == str(RANKS)
