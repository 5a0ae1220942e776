"""Nodes come and go while users' jobs run, on a cluster with two compute nodes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter

import pytest
import yaml

from tests.live_cluster import PLAIN, REPOSITORY, words
from tests.patience import until
from tests.web_listener import Listener

JOBS = 100
END = "/tmp/growth-is-over"
STARTED = "systemctl show --property=ActiveEnterTimestampMonotonic --value "
# What no node that comes or goes is a reason to restart.
KEPT = {
    "ctl1": ["munge", "mariadb", "slurmdbd", "slurmctld", "prometheus", "prometheus-alertmanager"],
    "login1": ["munge"],
    "gpu1": ["munge", "slurmd"],
    "gpu2": ["munge", "slurmd"],
}
RESTART_SLURMCTLD = {"debian12"}  # Slurm 22.05 takes over nodes no other way


@pytest.fixture(scope="module")
def kept(node, operator):
    """Asserts at the end that no daemon was restarted; a function that asserts it in between."""
    daemons = [
        (host, daemon)
        for host, several in KEPT.items()
        for daemon in several
        if not (daemon == "slurmctld" and operator.system in RESTART_SLURMCTLD)
    ]

    def started() -> dict[tuple[str, str], str]:
        return {(host, d): node(host).check_output(STARTED + d) for host, d in daemons}

    before = started()
    assert all(before.values())

    def same() -> None:
        assert started() == before

    return same


@pytest.fixture(scope="module")
def jobs(node, operator, kept):
    """A user's hundred jobs; the last ten, on gpu1, wait for the end, however long it takes."""
    del operator, kept
    submit = "sbatch --parsable -o /dev/null"
    wait = f"until [ -e {END} ]; do sleep 1; done"
    login = node("login1")
    several = login.check_output(f"{submit} --array=1-{JOBS - 10} --wrap 'sleep 25'")
    last = login.check_output(f"{submit} --array=1-10 -w gpu1 --wrap '{wait}'")
    return f"{several},{last}"


@pytest.fixture(scope="module")
def prometheus(node):
    return Listener(node("ctl1"), 9090, "ctl1")


def watched(prometheus) -> set[str]:
    return {sample["metric"]["node"] for sample in prometheus.query('up{job="node"}')}


def hosts_of(run) -> set[str]:
    return set(re.findall(r"^(\S+)\s+: ok=", run.stdout, re.MULTILINE))


def test_two_new_nodes_touch_themselves_and_those_that_must_know(
    node, operator, jobs, kept, prometheus, tmp_path
):
    """The other compute nodes learn the names, and nothing else; their jobs go on."""
    arguments = ("--compute=4", "--gpus=2", f"--inventory={operator.inventory}")
    added = operator.virtual_cluster("up", *arguments, f"--os={operator.system}")
    assert added.returncode == 0, added.stderr
    # gpu2 is a node that Ansible cannot reach: the new ones come all the same, and the run says so.
    (tmp_path / "off.yml").write_text("all: {hosts: {gpu2: {ansible_port: 9}}}\n")
    new = ("--limit", "gpu3,gpu4", "-i", str(tmp_path / "off.yml"))
    run = operator.playbook("add-nodes.yml", *new, timeout=1800)
    assert run.returncode == 4, run.stdout[-3000:]
    recap = dict(re.findall(r"^(\S+)\s+: (ok=\d+ +changed=\d+)", run.stdout, re.MULTILINE))
    assert recap["gpu1"].endswith("changed=1")
    assert recap["gpu2"].split() == ["ok=0", "changed=0"]
    assert {"ctl1", "login1", "gpu3", "gpu4"} <= set(recap)
    for name in ("gpu3", "gpu4"):
        assert name in node("gpu1").check_output(f"getent hosts {name}")
    assert "--nodes gpu3,gpu4" in words(run)
    shown = node("login1").check_output("sinfo -h -N -o '%N %G'")
    assert shown.splitlines() == [f"gpu{i} gpu:virtual:2" for i in (1, 2, 3, 4)]
    for name in ("gpu3", "gpu4"):
        assert node("login1").check_output(f"srun -w {name} --overlap hostname") == name
    assert {"gpu1", "gpu2", "gpu3", "gpu4"} <= watched(prometheus)
    kept()


def test_without_limit_nobody_is_new(operator):
    run = operator.playbook("add-nodes.yml")
    assert run.returncode != 0
    assert "name them, as in --limit gpu5,gpu6" in words(run)


# --- one leaves ----------------------------------------------------------------------------------


def declare(operator, compute: tuple[str, ...], retired: tuple[str, ...] = ()) -> None:
    path = operator.inventory / "nodes.yml"
    document = yaml.safe_load(path.read_text())
    children = document["all"]["children"]
    children["gpu_virtual"]["hosts"] = {name: {} for name in compute}
    children["retired"] = {"hosts": {name: {} for name in retired}}
    path.write_text(yaml.safe_dump(document))


@pytest.fixture(scope="module")
def retired(operator):
    """What an operator does first: gpu4 is no compute node of the inventory any more."""
    declare(operator, compute=("gpu1", "gpu2", "gpu3"), retired=("gpu4",))


@pytest.fixture(scope="module")
def long_job(node, jobs):
    """A job that nobody waits for; it has begun."""
    del jobs
    login = node("login1")
    job = login.check_output("sbatch --parsable -w gpu4 -o /dev/null --wrap 'sleep 900'")
    login.check_output(f"sudo scontrol update jobid={job} priority=4294967290")
    until(lambda: login.check_output(f"squeue -h -j {job} -o %T") == "RUNNING", seconds=90)
    yield job
    login.check_output(f"scancel {job}")


@pytest.mark.parametrize(
    ("playbook", "sentence"),
    [
        ("remove-nodes.yml", "gpu4 stays, for job"),
        ("slurm.yml", "gpu4: in Slurm, not in slurm_compute any more, and job"),
    ],
)
def test_a_node_with_a_job_is_not_removed(
    node, operator, retired, long_job, playbook, sentence, kept
):
    run = operator.playbook(playbook)
    assert run.returncode != 0
    assert sentence in words(run), run.stdout[-3000:]
    assert f"{long_job} (ops)" in words(run)
    assert set(re.findall(r"^ctl1 .*changed=(\d+)", run.stdout, re.MULTILINE)) == {"0"}
    assert "drain" not in node("login1").check_output("sinfo -h -n gpu4 -o %T")
    kept()


def test_a_removal_that_was_killed_goes_on(
    node, operator, jobs, retired, long_job, kept, prometheus
):
    login = node("login1")
    state = "sinfo -h -n gpu4 -o %T"
    argv = ("ansible-playbook", *operator.inventories, "playbooks/remove-nodes.yml")
    run = subprocess.Popen(
        [*argv, "-e", "slurm_removal_wait=600"],
        cwd=REPOSITORY,
        env=os.environ | PLAIN,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: login.check_output(state) == "draining", seconds=90)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    assert login.check_output(f"squeue -h -j {long_job} -o %T") == "RUNNING"
    login.check_output(f"scancel {long_job}")

    done = operator.playbook("remove-nodes.yml", "-e", "slurm_removal_wait=120")
    assert done.returncode == 0, done.stdout[-3000:]
    assert hosts_of(done) == {"ctl1", "login1", "gpu4"}
    assert login.check_output("sinfo -h -N -o %N").split() == ["gpu1", "gpu2", "gpu3"]
    assert not node("gpu4").package("slurmd").is_installed
    with node("gpu4").sudo():
        assert not node("gpu4").file("/etc/munge/munge.key").exists
    until(lambda: "gpu4" not in watched(prometheus), seconds=60)
    kept()


def test_every_job_ran_once(node, jobs, kept):
    login = node("login1")
    assert login.check_output(f"squeue -h -j {jobs} -o %i"), "the jobs ended too early"
    node("gpu1").check_output(f"touch {END}")
    until(lambda: login.check_output(f"squeue -h -j {jobs} -o %i") == "", seconds=300)
    command = f"sacct --duplicates -X -n -P -j {jobs} -o jobid,state,restarts"

    def job_lines() -> list[str]:
        return login.check_output(command).splitlines()

    until(lambda: len(job_lines()) == JOBS and "RUNNING" not in " ".join(job_lines()), seconds=30)
    assert Counter(line.partition("|")[2] for line in job_lines()) == {"COMPLETED|0": JOBS}
    assert len({line.partition("|")[0] for line in job_lines()}) == JOBS
    kept()


def test_three_nodes_are_left_and_work_together(node, operator):
    operator.virtual_cluster("stop", "gpu4")
    hosts = node("login1").check_output("srun -N3 --ntasks-per-node=1 --gres=gpu:1 hostname")
    assert sorted(hosts.splitlines()) == ["gpu1", "gpu2", "gpu3"]


def test_a_node_that_left_comes_back_by_the_whole_playbook(node, operator, kept):
    """Limited to itself and the hosts that must know: the others learn of it from slurmctld."""
    assert operator.virtual_cluster("start", "gpu4").returncode == 0
    everyone = ("gpu1", "gpu2", "gpu3", "gpu4")
    declare(operator, compute=everyone)
    limit = "gpu4,slurm_controller,slurm_login"
    run = operator.playbook("slurm-cluster.yml", "--limit", limit, timeout=1800)
    assert run.returncode == 0, run.stdout[-3000:]
    assert hosts_of(run) - {"localhost"} == {"ctl1", "login1", "gpu4"}
    login = node("login1")
    shown = login.check_output("sinfo -h -N -o '%N %T %G'")
    assert shown.splitlines() == [f"{name} idle gpu:virtual:2" for name in everyone]
    hosts = login.check_output("srun -N4 --ntasks-per-node=1 --gres=gpu:1 hostname")
    assert sorted(hosts.splitlines()) == list(everyone)
    kept()
