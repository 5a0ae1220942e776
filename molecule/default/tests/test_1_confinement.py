"""What users reach of a compute node and of each other's jobs, on the cluster as it is deployed.

What a job's cgroup holds it to, and whom else SSH refuses, is tested with the roles.
"""

import pytest

from tests.patience import until

NODE = "gpu1"


def submit(node, user, command):
    words = f"--parsable --output=/dev/null --nodelist={NODE} --mem=100M --wrap='{command}'"
    with node("login1").sudo():
        return node("login1").check_output(f"cd /tmp && runuser -u {user} -- sbatch {words}")


@pytest.fixture
def job(node):
    """A job of ada's that runs."""
    number = submit(node, "ada", "sleep 300")
    ask = f"squeue --noheader --format=%T --jobs={number}"
    until(lambda: node("login1").check_output(ask) == "RUNNING")
    yield number
    with node("login1").sudo():
        node("login1").check_output(f"scancel {number}")


def test_who_has_no_job_on_a_node_does_not_come_in(operator):
    assert operator.virtual_cluster("ssh", "ada@login1", "true").returncode == 0
    assert operator.virtual_cluster("ssh", f"ada@{NODE}", "true").returncode != 0
    assert operator.virtual_cluster("ssh", NODE, "true").returncode == 0


def test_who_has_one_lands_in_it(operator, job):
    # Slurm says RUNNING a moment before the node has begun the step that a login lands in.
    def inside():
        done = operator.virtual_cluster("ssh", f"ada@{NODE}", "cat /proc/self/cgroup")
        return done.stdout if done.returncode == 0 else ""

    assert f"/job_{job}/" in until(inside)


def test_root_submits_nothing(node):
    with node("ctl1").sudo():
        tried = node("ctl1").run("cd /tmp && sbatch --wrap=true")
    assert tried.rc != 0
    assert "Invalid user id" in tried.stderr
