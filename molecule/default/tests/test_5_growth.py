"""A cluster that grows. The files before this one count on two compute nodes, test_7 on three."""

DAEMON = "systemctl show --property=ActiveEnterTimestampMonotonic --value slurmd"
NODES = ("gpu1", "gpu2")


def test_a_new_node_touches_itself_and_the_controller(node, operator):
    """The others learn of it from slurmctld: no run goes there, and no daemon is restarted."""
    arguments = ("--compute=3", "--gpus=2", f"--inventory={operator.inventory}")
    added = operator.virtual_cluster("up", *arguments, f"--os={operator.system}")
    assert added.returncode == 0, added.stderr
    before = {name: node(name).check_output(DAEMON) for name in NODES}
    limit = "gpu3,slurm_controller,slurm_login"
    run = operator.playbook("slurm-cluster.yml", "--limit", limit, timeout=1800)
    assert run.returncode == 0, run.stdout[-3000:]
    login = node("login1")
    shown = login.check_output("sinfo -h -N -o '%N %T %G'")
    assert shown.splitlines() == [f"gpu{i} idle gpu:virtual:2" for i in (1, 2, 3)]
    hosts = login.check_output("srun -N3 --ntasks-per-node=1 --gres=gpu:1 hostname")
    assert sorted(hosts.splitlines()) == ["gpu1", "gpu2", "gpu3"]
    assert {name: node(name).check_output(DAEMON) for name in NODES} == before
