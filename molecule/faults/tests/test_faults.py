"""The validator against faults of a running cluster: verdict, exit code, and the node it names."""

from __future__ import annotations

import textwrap

import pytest

from tests.live_cluster import virtual_cluster
from tests.live_validator import (
    CLUSTER,
    fault,
    in_the_payload,
    on,
    run,
    start,
    wait_until,
    when_a_payload_runs,
)

__all__ = ["run"]

# --- a healthy cluster ----------------------------------------------------------------------------


def test_no_fault_at_all(run):
    before = [on(node, "ls -A /tmp") for node in ("gpu1", "gpu2", "login1")]
    done = run()
    assert done.code == 0, done.output[-4000:]
    assert done.nodes("passing") == ["gpu1", "gpu2"]
    assert done.nodes("failing") == done.nodes("suspect") == done.nodes("unproven") == []
    # A healthy run leaves nothing on any node.
    assert [on(node, "ls -A /tmp") for node in ("gpu1", "gpu2", "login1")] == before


# --- ranks ----------------------------------------------------------------------------------------


def test_a_rank_freezes(run, tmp_path):
    started = start(tmp_path / "run")
    frozen = when_a_payload_runs("gpu2", "ddp", "kill -STOP $p")
    done = run.written(started.end())
    assert frozen.wait() == 0
    done.fails("gpu2")


def test_a_wrong_sum_on_one_rank(run):
    code = """
    import torch.distributed as dist
    right = dist.all_reduce
    def wrong(tensor, *arguments, **options):
        work = right(tensor, *arguments, **options)
        if tensor.numel() > 1000:
            tensor.view(-1)[7] += 1
        return work
    dist.all_reduce = wrong
    """
    with in_the_payload(("gpu2",), "all_reduce", code):
        done = run()
    done.fails("gpu2")


def test_gradients_that_are_not_synchronised(run):
    code = """
    from torch.nn.parallel import DistributedDataParallel as Ddp
    made = Ddp.__init__
    def init(self, *arguments, **options):
        made(self, *arguments, **options)
        self.require_backward_grad_sync = False
    Ddp.__init__ = init
    """
    with in_the_payload(("gpu1", "gpu2"), "ddp", code):
        done = run()
    assert done.code == 1, done.output[-4000:]
    assert "ddp" in done.output
    assert done.nodes("passing") == []


def test_a_library_is_broken_on_one_node(run):
    with in_the_payload(("gpu2",), "ddp", "sys.modules['torch'] = None  # cannot be imported"):
        done = run()
    done.fails("gpu2")


# --- nodes ----------------------------------------------------------------------------------------


def test_slurmd_dies_in_the_middle_of_a_job(run, tmp_path):
    started = start(tmp_path / "run")
    then = "systemctl stop slurmd; pkill -KILL slurmstepd; pkill -KILL -f '[d]dp [{]'"
    killed = when_a_payload_runs("gpu2", "ddp", then)
    done = run.written(started.end())
    assert killed.wait() == 0
    on("gpu2", "systemctl start slurmd")
    on("ctl1", "scontrol update nodename=gpu2 state=resume || true")
    done.fails("gpu2")


def test_a_link_between_two_nodes_is_cut(run):
    address = on("gpu1", "hostname -I").split()[0]
    with fault(
        "gpu2", f"ip route add blackhole {address}/32", f"ip route del blackhole {address}/32"
    ):
        done = run()
    done.fails()
    assert done.nodes("suspect") == ["gpu1", "gpu2"]
    assert "firewall" in done.output


FULL = "mount -t tmpfs -o size=64k,mode=1777 none /tmp; dd if=/dev/zero of=/tmp/x bs=1k || true"


@pytest.mark.parametrize(
    ("put_in", "take_out"),
    [
        pytest.param("hostname mail7", "hostname gpu2", id="a host has another name"),
        pytest.param("mount -t tmpfs -o ro none /tmp", "umount -l /tmp", id="tmp is read only"),
        pytest.param(FULL, "umount -l /tmp", id="tmp is full"),
    ],
)
def test_one_node_is_at_fault(run, put_in, take_out):
    with fault("gpu2", put_in, take_out):
        run().fails("gpu2")


def test_munge_is_stopped(run):
    with fault("gpu2", "systemctl stop munge", "systemctl start munge; systemctl restart slurmd"):
        done = run()
    on("ctl1", "scontrol update nodename=gpu2 state=resume || true")
    done.fails("gpu2")


def test_answers_of_an_earlier_run_are_replayed(run, tmp_path):
    python = "/opt/plumbline/bin/python"
    record = f"""
        mv {python} {python}.real
        cat > {python} <<'END'
        #!/bin/bash
        payload="${{@: -2:1}}"
        exec {python}.real "$@" > >(tee /var/tmp/plumbline.$payload)
        END
        chmod 755 {python}; chmod 1777 /var/tmp
    """
    replay = f"""
        cat > {python} <<'END'
        #!/bin/bash
        payload="${{@: -2:1}}"
        [ -f /var/tmp/plumbline.$payload ] || exec {python}.real "$@"
        echo "plumbline: started job $SLURM_JOB_ID node $SLURMD_NODENAME time $(date +%s%N)" >&2
        cat > /dev/null
        cat /var/tmp/plumbline.$payload
        END
    """
    try:
        for node in ("gpu1", "gpu2"):
            on(node, textwrap.dedent(record))
        assert start(tmp_path / "recorded").end().code == 0
        for node in ("gpu1", "gpu2"):
            on(node, textwrap.dedent(replay))
        done = run()
    finally:
        for node in ("gpu1", "gpu2"):
            on(node, f"mv {python}.real {python}; rm -f /var/tmp/plumbline.*")
    assert done.code == 1, done.output[-4000:]
    assert done.nodes("passing") == []


# --- Slurm, its users, the login node ------------------------------------------------------------


def test_a_partition_is_drained(run):
    with fault(
        "ctl1",
        "scontrol update partitionname=gpu state=drain",
        "scontrol update partitionname=gpu state=up",
    ):
        done = run()
    assert done.code in (2, 3), done.output[-4000:]
    assert done.nodes("failing") == done.nodes("suspect") == []


def test_a_colleague_has_a_job_on_a_node(run):
    on("login1", "id colleague || useradd -m colleague")
    for node in ("ctl1", "gpu1", "gpu2"):
        on(node, "id colleague || useradd -m colleague")
    on("ctl1", "sacctmgr -i add user colleague account=research || true")  # there it is already
    job = (
        "runuser -u colleague -- sbatch --chdir=/tmp -w gpu2 --exclusive -t 20 --wrap 'sleep 1200'"
    )
    on("login1", job)
    wait_until("the job", lambda: "gpu2" in on("ctl1", "squeue -h -t R -o %N"))
    try:
        done = run()
    finally:
        on("ctl1", "scancel -u colleague")
    assert done.code == 3, done.output[-4000:]
    assert done.nodes("failing") == done.nodes("suspect") == []


def test_slurmctld_is_stopped(run):
    with fault("ctl1", "systemctl stop slurmctld", "systemctl start slurmctld"):
        done = run()
    done.fails()
    assert done.nodes("suspect") == []
    assert "state=drain" not in done.output


def test_slurmdbd_is_stopped(run):
    with fault("ctl1", "systemctl stop slurmdbd", "systemctl start slurmdbd"):
        done = run()
    done.fails()
    assert done.nodes("suspect") == []


def test_the_login_node_goes_away(run, tmp_path):
    started = start(tmp_path / "run")
    there = "squeue -h -o %j | grep -q all_reduce"
    wait_until("the cluster tier", lambda: on("ctl1", there) == "", 120)
    virtual_cluster(CLUSTER, "stop", "login1")
    try:
        done = run.written(started.end())
        # Its jobs end by themselves, at the latest at their time limit.
        wait_until("no job", lambda: on("ctl1", "squeue -h") == "", 420)
    finally:
        assert virtual_cluster(CLUSTER, "start", "login1").returncode == 0
    assert done.code in (1, 2), done.output[-4000:]
    assert done.nodes("failing") == done.nodes("suspect") == []
