"""What the playbook does to a cluster that is in use."""

import re
import time

import pytest

DAEMONS = {
    "ctl1": ["munge", "mariadb", "slurmdbd", "slurmctld"],
    "login1": ["munge"],
    "gpu1": ["munge", "slurmd"],
    "gpu2": ["munge", "slurmd"],
}


def started(node):
    return {
        (name, daemon): node(name).check_output(
            f"systemctl show --property=ExecMainStartTimestampMonotonic --value {daemon}"
        )
        for name, daemons in DAEMONS.items()
        for daemon in daemons
    }


def test_a_second_run_changes_nothing_and_restarts_nothing(node, operator):
    job = node("login1").check_output("sbatch --parsable -N2 -o /dev/null --wrap 'sleep 300'")
    try:
        before = started(node)
        run = operator.playbook("slurm-cluster.yml")
        assert run.returncode == 0, run.stdout[-3000:]
        recap = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", run.stdout, re.MULTILINE)
        assert {host for host, _ in recap} >= set(DAEMONS)
        assert {changed for _, changed in recap} == {"0"}
        assert started(node) == before
        assert node("login1").check_output(f"squeue -h -j {job} -o %T") == "RUNNING"
    finally:
        node("login1").check_output(f"scancel {job}")


def test_one_node_that_is_off_does_not_stop_the_others(node, operator):
    operator.virtual_cluster("stop", "gpu2")
    try:
        with node("gpu1").sudo():
            node("gpu1").check_output("sed -i s/yes/no/ /etc/slurm/cgroup.conf")
        run = operator.playbook("slurm-cluster.yml")
        assert run.returncode != 0
        assert "Not reached, and therefore not configured: gpu2" in re.sub(r"\s+", " ", run.stdout)
        assert re.search(r"^gpu2 .*unreachable=1", run.stdout, re.MULTILINE)
        mended = node("gpu1").file("/etc/slurm/cgroup.conf").content_string
        assert "ConstrainDevices=yes" in mended
    finally:
        assert operator.virtual_cluster("start", "gpu2").returncode == 0


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ("slurm_partitons: []", "did you mean slurm_partitions?"),
        ("slurm_slurmd_timeout: soon", "must be of type int, but is 'soon'"),
        ("slurm_database_password: ''", "slurm_database_password"),
        ("slurm_database_password: changeme", "is a word that everyone knows"),
        ("slurm_partitions: [{name: x, nodes: [gpu_h200]}]", 'names "gpu_h200"'),
    ],
)
def test_bad_variables_are_refused_in_seconds(operator, tmp_path, variables, sentence):
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    (tmp_path / "group_vars/all").mkdir(parents=True)
    (tmp_path / "group_vars/all/site.yml").write_text(f"---\n{variables}\n")
    begin = time.monotonic()
    run = operator.playbook("slurm-cluster.yml", "-i", str(tmp_path))
    refused_before_any_change(run, sentence)
    assert time.monotonic() - begin < 30


def test_a_node_in_two_kinds_of_hardware_is_refused(operator, tmp_path):
    (tmp_path / "hosts.yml").write_text(
        "all: {children: {slurm_compute: {children: {gpu_h100: {hosts: {gpu1: }}}}}}\n"
    )
    run = operator.playbook("slurm-cluster.yml", "-i", str(tmp_path))
    refused_before_any_change(run, "gpu1 is in 2 groups of compute nodes")


def test_a_node_with_another_system_is_refused(node, operator):
    with node("gpu1").sudo():
        node("gpu1").check_output("cp -L /etc/os-release /root/ && cp /etc/debian_version /root/")
        node("gpu1").check_output("sed -i 's/^VERSION_ID=.*/VERSION_ID=\"11\"/' /etc/os-release")
        node("gpu1").check_output("echo 11.9 > /etc/debian_version")
    try:
        run = operator.playbook("slurm-cluster.yml")
    finally:
        with node("gpu1").sudo():
            node("gpu1").check_output("cat /root/os-release > /etc/os-release")
            node("gpu1").check_output("cp /root/debian_version /etc/debian_version")
    refused_before_any_change(run, "gpu1 runs Debian 11, which is not supported")


def refused_before_any_change(run, sentence):
    assert run.returncode != 0
    assert sentence in re.sub(r"\s+", " ", run.stdout), run.stdout[-3000:]
    assert set(re.findall(r"changed=(\d+)", run.stdout)) == {"0"}
