"""The cluster as its users find it after the playbook."""

import shlex
import time

import pytest

from tests.patience import until


@pytest.fixture(scope="module")
def ada(operator):
    """A function that runs a command on a node as the demo's ordinary user, with a key."""

    def run(command, on="login1"):
        return operator.virtual_cluster("ssh", f"ada@{on}", command)

    return run


def test_the_compute_nodes_are_idle_with_their_gpus(node):
    shown = node("login1").check_output("sinfo -h -N -o '%N %T %G'")
    assert shown.splitlines() == [f"gpu{i} idle gpu:virtual:2" for i in (1, 2, 3)]


def test_a_job_over_all_nodes_runs_and_is_accounted(node):
    login = node("login1")
    hosts = login.check_output("srun --job-name=all -N3 --ntasks-per-node=1 --gres=gpu:2 hostname")
    assert sorted(hosts.splitlines()) == ["gpu1", "gpu2", "gpu3"]
    ask = "sacct -a -X -n -P --name=all --format=state,nnodes,alloctres"
    until(lambda: login.check_output(ask).startswith("COMPLETED|3|"), 30)
    assert "gres/gpu=6" in login.check_output(ask)


def test_users_load_a_torch_in_a_batch_job_and_ask_what_it_used(node):
    """From a login shell, as who came through SSH without a command has it."""
    login = node("login1")
    ask = "python -c 'import torch; print(torch.__version__)'"
    script = f"#!/bin/bash\nmodule load pytorch\n{ask}\n"
    batch = "sbatch --parsable --wait --nodelist=gpu1 --output=/tmp/modules.out"
    submit = f"printf %s {shlex.quote(script)} | {batch}"
    job = login.check_output(f"bash --login -c {shlex.quote(submit)}").strip()
    version = node("gpu1").check_output("cat /tmp/modules.out").partition("+")[0]
    listed = login.check_output("bash --login -c 'module --terse avail 2>&1'")
    assert f"pytorch/{version}" in listed.splitlines()
    until(lambda: "COMPLETED" in login.run(f"seff {job}").stdout, 30)
    assert login.check_output(f"seff {job}").startswith(f"Job {job} ")


def test_a_module_says_where_it_cannot_be_loaded(node):
    result = node("login1").run("bash --login -c 'module load pytorch'")
    assert result.rc != 0
    assert "cannot be loaded on this host: there is no folder" in " ".join(result.stderr.split())


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


# --- a user of the cluster -----------------------------------------------------------------------


def test_a_node_does_not_have_the_kernel_log_of_the_host(node):
    """Where the host has real GPUs, their XIDs would be told of each node."""
    compute = node("gpu1")
    with compute.sudo():
        assert compute.check_output("dmesg") == ""
        assert compute.check_output("journalctl --dmesg --boot --quiet --no-pager") == ""


def test_a_user_is_the_same_on_every_node(node):
    names = ("ctl1", "login1", "gpu1", "gpu2", "gpu3")
    ids = {name: node(name).check_output("id ada") for name in names}
    assert set(ids.values()) == {"uid=2001(ada) gid=2001(ada) groups=2001(ada)"}


def test_a_user_logs_in_and_is_no_administrator(ada):
    done = ada("id -un; pwd; sudo -n id -u")
    assert (done.returncode, done.stdout) == (1, "ada\n/shared/home/ada\n"), done.stderr


def test_a_user_submits_jobs(ada, node):
    done = ada("srun -N2 --ntasks-per-node=1 --gres=gpu:1 sh -c 'id -un; pwd'")
    assert sorted(done.stdout.split()) == ["/shared/home/ada", "/shared/home/ada", "ada", "ada"], (
        done.stderr
    )
    done = ada("sbatch --wait --nodelist=gpu1 --output=said --wrap 'id -un; pwd'")
    assert done.returncode == 0, done.stderr
    assert ada("cat said").stdout == "ada\n/shared/home/ada\n"


def test_a_user_does_not_log_in_to_the_controller(ada):
    done = ada("true", on="ctl1")
    assert (done.returncode, "Permission denied" in done.stderr) == (255, True), done.stderr


def test_what_a_user_writes_on_one_node_all_nodes_have(node):
    login = node("login1")
    with login.sudo():
        login.check_output("install -d -o ops /shared/home/of-a-job")
    login.check_output("srun -w gpu1 sh -c 'echo weights > /shared/home/of-a-job/file'")
    written = login.check_output("srun -w gpu2 cat /shared/home/of-a-job/file")
    assert written == login.check_output("cat /shared/home/of-a-job/file") == "weights"
    with login.sudo():
        login.check_output("rm -r /shared/home/of-a-job")


def test_a_node_without_its_filesystem_runs_no_slurmd_until_it_is_back(node):
    lost = node("gpu2")
    with lost.sudo():
        lost.check_output("mount -t tmpfs none /shared")  # another one in its place
        try:
            lost.check_output("systemctl restart --no-block slurmd")
            time.sleep(5)
            assert lost.run("scontrol show slurmd").rc != 0
            state = lost.run("systemctl show --property=SubState --value slurmd").stdout.strip()
            assert state == "start-pre"
        finally:
            lost.check_output("umount /shared")
        until(lambda: lost.run("scontrol show slurmd").rc == 0)
    assert lost.check_output("systemctl is-active slurmd") == "active"
    # The health check may have drained the node meanwhile; its next round lifts that.
    ask = "sinfo -h -n gpu2 -o %T"
    until(lambda: node("login1").check_output(ask).strip() == "idle", 90)
