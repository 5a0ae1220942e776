"""What users reach of a compute node and of each other's jobs, on the cluster as it is deployed.

What a job's cgroup holds it to, and whom else SSH refuses, is tested with the roles.
"""

import time

import pytest

NODE = "gpu1"


def submit(node, user, command):
    words = f"--parsable --output=/dev/null --nodelist={NODE} --mem=100M --wrap='{command}'"
    with node("login1").sudo():
        return node("login1").check_output(f"cd /tmp && runuser -u {user} -- sbatch {words}")


@pytest.fixture
def job(node):
    """A job of ada's that runs."""
    number = submit(node, "ada", "sleep 300")
    deadline = time.monotonic() + 60
    while (
        node("login1").check_output(f"squeue --noheader --format=%T --jobs={number}") != "RUNNING"
    ):
        assert time.monotonic() < deadline
        time.sleep(1)
    yield number
    with node("login1").sudo():
        node("login1").check_output(f"scancel {number}")


def test_who_has_no_job_on_a_node_does_not_come_in(operator):
    assert operator.virtual_cluster("ssh", "ada@login1", "true").returncode == 0
    assert operator.virtual_cluster("ssh", f"ada@{NODE}", "true").returncode != 0
    assert operator.virtual_cluster("ssh", NODE, "true").returncode == 0


def test_who_has_one_lands_in_it_and_in_its_tmp(operator, node, job):
    inside = operator.virtual_cluster(
        "ssh", f"ada@{NODE}", "cat /proc/self/cgroup; touch /tmp/of-ada /dev/shm/of-ada"
    )
    assert inside.returncode == 0, inside.stderr
    assert f"/job_{job}/" in inside.stdout
    assert not node(NODE).file("/tmp/of-ada").exists
    assert not node(NODE).file("/dev/shm/of-ada").exists
    listed = "srun --jobid={} --overlap ls /tmp /dev/shm"
    with node("login1").sudo():
        own = node("login1").check_output(f"cd /tmp && runuser -u ada -- {listed.format(job)}")
    assert own.count("of-ada") == 2


def test_root_submits_nothing(node):
    with node("ctl1").sudo():
        tried = node("ctl1").run("cd /tmp && sbatch --wrap=true")
    assert tried.rc != 0
    assert "Invalid user id" in tried.stderr
