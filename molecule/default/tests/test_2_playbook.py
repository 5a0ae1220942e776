"""What the playbook does to a cluster that is in use."""

import re

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
    before = started(node)
    run = operator.playbook("slurm-cluster.yml")
    assert run.returncode == 0, run.stdout[-3000:]
    recap = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", run.stdout, re.MULTILINE)
    assert {host for host, _ in recap} >= set(DAEMONS)
    assert {changed for _, changed in recap} == {"0"}
    assert started(node) == before
    assert node("login1").check_output(f"squeue -h -j {job} -o %T") == "RUNNING"
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
