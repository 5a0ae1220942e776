"""Nodes in use are rebooted by `playbooks/reboot-nodes.yml`, and what came of their jobs.

What Slurm says of its nodes is written down on the controller while the playbook runs, several
times a second: a node too many that was out for a moment shows there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests import live_cluster
from tests.live_cluster import PLAIN, REPOSITORY, operate, sources, under_test, virtual_cluster
from tests.patience import until

CLUSTER = under_test()
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
NODES = ("gpu1", "gpu2", "gpu3")
MARK = "[plumbline:reboot]"
RUN_SECONDS = 900


def command(playbook: str, *arguments: str, **variables: object) -> list[str]:
    """At once: as many as a site of three nodes has by default, which is one."""
    extra = ("--extra-vars", json.dumps(variables)) if variables else ()
    play = ("ansible-playbook", *sources(INVENTORY), f"playbooks/{playbook}")
    return [*play, *arguments, *extra]


def run(playbook: str, *arguments: str, **variables: object) -> tuple[int, str]:
    """Exit status, and what was said as one line."""
    done = operate(*command(playbook, *arguments, **variables), timeout=RUN_SECONDS)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


on = partial(live_cluster.on, CLUSTER)
boot = partial(live_cluster.boot, CLUSTER)
state = partial(live_cluster.ends_of, CLUSTER)
watched = partial(live_cluster.watched, CLUSTER)
eventually = partial(until, seconds=90)


def drain(node: str, reason: str) -> None:
    on("ctl1", f"sudo scontrol update nodename={node} state=drain reason='{reason}'")


def resume(node: str) -> None:
    on("ctl1", f"sudo scontrol update nodename={node} state=resume")


def reason(node: str) -> str:
    """Why Slurm gives the node no jobs; "" when it does."""
    shown = on("ctl1", f"scontrol -o show node {node}")
    if not re.search(r"State=\S*(DRAIN|DOWN|NOT_RESP)", shown):
        return ""
    return shown.partition(" Reason=")[2]


def submit(node: str, seconds: int, *options: str) -> str:
    where = [f"--nodelist={node}"] if node else []
    words = " ".join(["sbatch --parsable --output=/dev/null", *where, *options])
    return on("login1", f"{words} --wrap 'sleep {seconds}'")


@pytest.fixture(autouse=True)
def _in_service() -> None:
    eventually(lambda: not any(reason(node) for node in NODES))


def test_a_rolling_reboot_loses_no_job_and_returns_what_it_took() -> None:
    before = {node: boot(node) for node in NODES}
    drain("gpu3", "bad fan")
    running = [submit("gpu1", 25), submit("gpu2", 25)]
    waiting = [submit("", 8, "--exclusive") for _ in range(10)]
    eventually(lambda: all("RUNNING" in state(job) for job in running))
    with watched() as moments:
        code, output = run("reboot-nodes.yml")
    try:
        assert code == 0, output[-3000:]
        assert "gpu3: Stays drained, because someone else drained it: bad fan" in output
        assert "bad fan" in reason("gpu3")
    finally:
        resume("gpu3")
    assert [reason(node) for node in ("gpu1", "gpu2")] == ["", ""]

    whole = [moment for moment in moments if set(moment) == set(NODES)]
    assert len(whole) > 20
    out = [
        {node for node, word in moment.items() if re.search("DRAIN|DOWN|NOT_RESP", word)}
        for moment in whole
    ]
    assert max(len(nodes - {"gpu3"}) for nodes in out) == 1
    assert set().union(*out) == set(NODES)
    assert all("gpu3" in nodes for nodes in out)
    # The cluster was in use: one node ended its job while it drained, the other went on with jobs.
    assert any(re.search("(MIXED|ALLOCATED).*DRAIN", moment["gpu1"]) for moment in whole)
    assert any(
        "DRAIN" in moment["gpu1"] and re.search("MIXED|ALLOCATED", moment["gpu2"])
        for moment in whole
    )

    after = {node: boot(node) for node in NODES}
    assert not set(before.values()) & set(after.values())
    eventually(lambda: not on("login1", "squeue --noheader"))
    assert [state(job) for job in running + waiting] == [["COMPLETED"]] * 12
    for node in NODES:
        assert on(node, "stat --format=%F /dev/nvidia1") == "character special file"


def test_a_run_that_was_killed_is_taken_up_by_the_next_and_nobody_goes_out_meanwhile() -> None:
    first, second = boot("gpu1"), boot("gpu2")
    job = submit("gpu1", 25)
    eventually(lambda: "RUNNING" in state(job))
    killed = subprocess.Popen(
        command("reboot-nodes.yml", "--limit", "gpu1"),
        cwd=REPOSITORY,
        env=os.environ | PLAIN,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        eventually(lambda: MARK in reason("gpu1"))
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    assert " by " in reason("gpu1")

    code, output = run("reboot-nodes.yml", "--limit", "gpu2")
    assert code != 0
    assert "gpu2 stays in service, because gpu1 (" in output
    assert (reason("gpu2"), boot("gpu2")) == ("", second)

    code, output = run("reboot-nodes.yml", "--limit", "gpu1")
    assert code == 0, output[-3000:]
    assert reason("gpu1") == ""
    assert boot("gpu1") != first
    assert state(job) == ["COMPLETED"]


def test_a_node_that_is_not_fit_stays_out_with_its_reason_and_stops_the_others() -> None:
    before = {node: boot(node) for node in NODES}
    on("gpu1", "sudo touch /etc/broken")
    check = "test ! -e /etc/broken || { echo 'GPU 3 fell off the bus'; false; }"
    code, output = run("reboot-nodes.yml", node_reboot_check=check)
    on("gpu1", "sudo rm /etc/broken")
    assert code != 0
    assert (
        "gpu1 is not fit for jobs: node_reboot_check ended with 1: GPU 3 fell off the bus" in output
    )
    assert f"{MARK} gpu1 is not fit for jobs" in reason("gpu1")
    assert "Cut short" in output
    assert boot("gpu1") != before["gpu1"]
    assert {node: boot(node) for node in NODES[1:]} == {n: before[n] for n in NODES[1:]}
    assert [reason(node) for node in NODES[1:]] == ["", ""]

    code, output = run("reboot-nodes.yml", "--limit", "gpu1", node_reboot_check=check)
    assert code == 0, output[-3000:]
    assert reason("gpu1") == ""


def test_a_job_that_takes_too_long_is_not_ended() -> None:
    before = boot("gpu2")
    job = submit("gpu2", 300)
    eventually(lambda: "RUNNING" in state(job))
    try:
        code, output = run("reboot-nodes.yml", "--limit", "gpu2", node_reboot_jobs_timeout=5)
        assert code != 0
        assert f"gpu2 is not free after 5 s: job {job} (ops). No job was ended" in output
        assert state(job) == ["RUNNING"]
        assert MARK in reason("gpu2")
        assert boot("gpu2") == before
    finally:
        on("login1", f"scancel {job}")
        resume("gpu2")


def test_a_node_that_waits_for_slurm_is_brought_back_when_slurm_was_told() -> None:
    """As one whose GPUs were cut otherwise: its slurmd has to wait for slurm.yml."""
    drain("gpu1", "[plumbline:slurm] another MIG layout")
    code, output = run("gpu-software.yml")
    assert code == 0, output[-3000:]
    assert "gpu1: Stays out of service until the run has done all of the node" in output
    assert reason("gpu1").startswith("[plumbline:slurm] another MIG layout")
    code, output = run("reboot-nodes.yml", "--limit", "gpu2")
    assert (code, reason("gpu2")) == (0, ""), output[-3000:]
    code, output = run("slurm-cluster.yml")
    assert code == 0, output[-3000:]
    assert reason("gpu1") == ""


def test_verify_is_one_table_and_changes_nothing() -> None:
    code, output = run("gpu-software.yml", "--tags", "verify")
    assert code == 0, output[-4000:]
    assert "NODES COMPONENT WHAT EXPECTED FOUND VERDICT" in output
    assert re.search(r"gpu\[1-3\] +nvidia_driver ", output)
    assert "5 nodes, all as they should be" in output
    assert set(re.findall(r"changed=(\d+)", output)) == {"0"}


def test_a_node_that_is_off_stays_off_and_is_a_row_of_the_table() -> None:
    assert virtual_cluster(CLUSTER, "stop", "gpu3").returncode == 0
    try:
        code, output = run("gpu-software.yml", "--tags", "verify")
        assert code != 0
        assert re.search(r"gpu3 node answer an answer .* FAIL", output)
        assert "5 nodes, 1 not as they should be: gpu3" in output
        assert "gpu3 exited" in " ".join(virtual_cluster(CLUSTER, "status").stdout.split())
    finally:
        assert virtual_cluster(CLUSTER, "start", "gpu3").returncode == 0
