"""The cluster as its users find it after the playbook."""

import time


def test_the_compute_nodes_are_idle_with_their_gpus(node):
    shown = node("login1").check_output("sinfo -h -N -o '%N %T %G'")
    assert shown.splitlines() == ["gpu1 idle gpu:virtual:2", "gpu2 idle gpu:virtual:2"]


def test_a_job_over_both_nodes_runs_and_is_accounted(node):
    login = node("login1")
    hosts = login.check_output("srun --job-name=both -N2 --ntasks-per-node=1 --gres=gpu:2 hostname")
    assert sorted(hosts.splitlines()) == ["gpu1", "gpu2"]
    deadline = time.monotonic() + 30
    shown = ""
    while "COMPLETED" not in shown and time.monotonic() < deadline:
        time.sleep(1)
        shown = login.check_output("sacct -a -X -n -P --name=both --format=state,nnodes,alloctres")
    assert shown.startswith("COMPLETED|2|")
    assert "gres/gpu=4" in shown


def test_an_ordinary_user_cannot_read_a_secret_on_any_node(node):
    for name, path in (
        ("ctl1", "/etc/slurm/slurmdbd.conf"),
        ("ctl1", "/etc/munge/munge.key"),
        ("login1", "/etc/munge/munge.key"),
        ("gpu1", "/etc/munge/munge.key"),
    ):
        assert node(name).run(f"cat {path}").rc != 0


def test_a_node_without_the_key_is_not_let_in(node):
    """A daemon or command with another key is refused by slurmctld."""
    login = node("login1")
    with login.sudo():
        login.check_output("cp -p /etc/munge/munge.key /etc/munge/kept")
        login.check_output("head -c 1024 /dev/urandom > /etc/munge/munge.key")
        login.check_output("systemctl restart munge")
    refused = login.run("sinfo")
    with login.sudo():
        login.check_output("mv /etc/munge/kept /etc/munge/munge.key && systemctl restart munge")
    assert refused.rc != 0
    assert login.run("sinfo").rc == 0
