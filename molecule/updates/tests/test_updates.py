"""Nodes in use are updated by `scripts/update-nodes`, and what came of their jobs.

What Slurm says of its nodes is written down on the controller while the rounds run, several times a
second: a node too many that was out for a moment shows there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import live_cluster, processes
from tests.live_cluster import PLAIN, REPOSITORY, operate, sources, under_test
from tests.patience import until

CLUSTER = under_test()
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
HOLD = INVENTORY / ".plumbline-hold"
NODES = ("gpu1", "gpu2", "gpu3", "gpu4")
MARK = "[plumbline:update]"
PROGRESS = "/var/lib/plumbline/node-updates.json"
# The system's packages are the first test's, and the suite that is the default is the second's.
SHORT = {"node_update_suite": "quick"}
QUICK = SHORT | {"node_update_packages": "none"}
TORCH = "/usr/lib/python3/dist-packages/torch"

on = partial(live_cluster.on, CLUSTER)
boot = partial(live_cluster.boot, CLUSTER)
state = partial(live_cluster.ends_of, CLUSTER)
watched = partial(live_cluster.watched, CLUSTER)
eventually = partial(until, seconds=120)
at_length = partial(until, seconds=1500)


class Update:
    """The program, as an operator starts it in a shell of their own."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        with log.open("w") as out:
            self._process = subprocess.Popen(
                ["scripts/update-nodes", *sources(INVENTORY), *arguments],
                cwd=REPOSITORY,
                env=os.environ | PLAIN,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return " ".join(self.log.read_text().split())

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def end(self, seconds: float = 1500) -> int:
        return self._process.wait(seconds)

    def kill(self, everything: bool = True) -> None:
        """Without a warning: the program with its round, or alone."""
        pids = processes.descendants(self._process.pid) if everything else {self._process.pid}
        processes.kill(pids)
        self._process.wait()

    def interrupt(self) -> int:
        os.killpg(self._process.pid, signal.SIGINT)
        return self._process.wait(120)


@pytest.fixture
def update(tmp_path: Path) -> Iterator[object]:
    started: list[Update] = []

    def start(*arguments: str) -> Update:
        started.append(Update(tmp_path / f"{len(started)}.log", *arguments))
        return started[-1]

    yield start
    for one in started:
        if not one.over:
            one.kill()


def progress() -> dict[str, object]:
    text = on("ctl1", f"cat {PROGRESS} 2>&- || echo '{{}}'")
    document: dict[str, object] = json.loads(text)
    return document


def done() -> set[str]:
    return set(progress().get("done", ()))  # type: ignore[arg-type]


def wish_for_a_reboot(node: str) -> None:
    on(node, "sudo touch /run/reboot-required && sudo cp /etc/hostname /run/reboot-required.pkgs")


def reason(node: str) -> str:
    """Why Slurm gives the node no jobs; "" when it does."""
    shown = on("ctl1", f"scontrol -o show node {node}")
    if not re.search(r"State=\S*(DRAIN|DOWN|NOT_RESP|MAINT)", shown):
        return ""
    return shown.partition(" Reason=")[2] or "reserved"


def reserved() -> bool:
    return "plumbline-update" in on("ctl1", "scontrol -o show reservation")


def submit(node: str, seconds: int) -> str:
    words = f"sbatch --parsable --output=/dev/null --nodelist={node} --time=2:00:00"
    return on("login1", f"{words} --wrap 'sleep {seconds}'")


@pytest.fixture(autouse=True)
def _in_service() -> None:
    eventually(lambda: not any(reason(node) for node in NODES))


def test_a_job_of_an_hour_on_one_node_holds_no_other_up(update) -> None:
    """And the hold on the inventory is free while it is waited for."""
    before = {node: boot(node) for node in NODES}
    wish_for_a_reboot("gpu2")
    job = submit("gpu1", 3600)
    eventually(lambda: "RUNNING" in state(job))
    begun = time.monotonic()
    with watched() as moments:
        first = update("--", "-e", json.dumps(SHORT))
        at_length(lambda: done() == {"gpu2", "gpu3", "gpu4"} or first.over)
        seconds = time.monotonic() - begun
        at_length(lambda: re.search(r"3 of 4 nodes are done; 1 waits for jobs: gpu1", first.said))
    print(f"three nodes beside a job of an hour: {seconds:.0f} s")
    assert state(job) == ["RUNNING"]
    assert f"gpu1 (job {job} of ops until" in first.said
    assert reason("gpu1").startswith(MARK)
    assert not any(reason(node) for node in NODES[1:])
    # One that asked for it was rebooted, and no other.
    assert boot("gpu2") != before["gpu2"]
    assert {node: boot(node) for node in ("gpu3", "gpu4")} == {
        n: before[n] for n in ("gpu3", "gpu4")
    }
    # Ten per cent of four nodes are one, at any moment.
    out = [
        {n for n, word in moment.items() if re.search("DRAIN|DOWN|NOT_RESP|MAINT", word)}
        for moment in moments
        if set(moment) == set(NODES)
    ]
    assert len(out) > 100
    assert max(map(len, out)) == 1
    # Others may work on the inventory meanwhile.
    assert HOLD.read_text() == ""
    held = operate("ansible-playbook", *sources(INVENTORY), "playbooks/hold.yml")
    assert held.returncode == 0, held.stdout[-2000:]

    first.kill(everything=False)
    second = update("--", "-e", json.dumps(SHORT))
    at_length(lambda: "waits for jobs: gpu1" in second.said)
    assert "Goes on with the update that" in second.said
    code = second.interrupt()
    assert (code, "Interrupted." in second.said) == (2, True), second.said[-2000:]

    third = update("--", "-e", json.dumps(SHORT))
    at_length(lambda: "waits for jobs: gpu1" in third.said)
    on("login1", f"scancel {job}")
    assert third.end() == 0, third.said[-3000:]
    assert "4 of 4 nodes are done. The update is complete." in third.said
    assert not any(reason(node) for node in NODES)
    assert not reserved()


def test_what_is_killed_while_nodes_are_proven_lets_nobody_in_and_goes_on(update) -> None:
    killed = update("--limit", "gpu3", "--", "-e", "node_update_packages=none")
    at_length(lambda: reserved() or killed.over)
    killed.kill()
    eventually(lambda: "MAINT" in on("ctl1", "scontrol -o show node gpu3"))
    job = submit("gpu3", 1)
    time.sleep(5)
    assert state(job) == ["PENDING"]
    assert "gpu3" not in done()

    # Another node's round takes it up too: no round ends its reservation and leaves it unproven.
    again = update("--", "-e", "node_update_packages=none")
    assert again.end() == 0, again.said[-3000:]
    assert not reserved()
    assert "proves again gpu3" in again.said
    assert progress()["done"] == {"gpu3": "returned"}
    eventually(lambda: state(job) == ["COMPLETED"])


def test_a_node_that_fails_its_validation_stays_out_and_no_other_follows(update) -> None:
    on("gpu1", f"sudo chmod 0 {TORCH}")
    try:
        first = update("--", "-e", json.dumps(QUICK))
        assert first.end() == 1, first.said[-3000:]
        assert "gpu1 may not return: the validation has it as failing: torch" in first.said
        assert "because the first one, gpu1, did not come back" in first.said
        assert reason("gpu1").startswith(f"{MARK} gpu1 may not return: the validation has it as")
        assert done() == set()
        assert not any(reason(node) for node in NODES[1:])
        assert not reserved()
    finally:
        on("gpu1", f"sudo chmod 755 {TORCH}")
    on("ctl1", "sudo scontrol update nodename=gpu4 state=drain reason='bad fan'")
    try:
        again = update("--", "-e", json.dumps(QUICK | {"node_update_at_once": 2}))
        assert again.end() == 0, again.said[-3000:]
        assert progress()["done"] == {
            **dict.fromkeys(NODES[:3], "returned"),
            "gpu4": "kept",
        }
        assert "bad fan" in reason("gpu4")
    finally:
        on("ctl1", "sudo scontrol update nodename=gpu4 state=resume")


def test_check_mode_changes_nothing(update) -> None:
    before = on("ctl1", f"cat {PROGRESS}")
    play = ("ansible-playbook", *sources(INVENTORY), "playbooks/update-nodes.yml", "--check")
    run = operate(*play, timeout=600)
    assert run.returncode == 0, run.stdout[-3000:]
    assert "drains gpu1" in run.stdout
    assert on("ctl1", f"cat {PROGRESS}") == before
    assert not any(reason(node) for node in NODES)


@pytest.fixture
def _reports_its_start_as_a_boot() -> Iterator[None]:
    """slurmd of gpu4 with `-b`.

    A container's uptime is its host's: slurmctld would wait for a boot that it has not seen.
    """
    environment = on("gpu4", "systemctl show slurmd --property=Environment --value")
    found = re.search(r"SLURMD_OPTIONS=([^\"]*)", environment)
    assert found
    lines = f'[Service]\nEnvironment="SLURMD_OPTIONS={found[1].strip()} -b"\n'
    folder = "/etc/systemd/system/slurmd.service.d"
    on("gpu4", f"printf '{lines}' | sudo tee {folder}/99-test.conf && sudo systemctl daemon-reload")
    yield
    on("gpu4", f"sudo rm {folder}/99-test.conf && sudo systemctl daemon-reload")
    on("gpu4", "sudo systemctl restart slurmd")


@pytest.mark.usefixtures("_reports_its_start_as_a_boot")
def test_slurm_reboots_a_node_by_itself() -> None:
    """`RebootProgram` and `ResumeTimeout` are set: with a job, and when it has ended."""
    before = boot("gpu4")
    job = submit("gpu4", 15)
    eventually(lambda: "RUNNING" in state(job))
    on("ctl1", "sudo scontrol reboot ASAP nextstate=RESUME reason=test gpu4")
    assert boot("gpu4") == before

    def rebooted() -> bool:
        asked = live_cluster.virtual_cluster(
            CLUSTER, "ssh", "gpu4", "cat /proc/sys/kernel/random/boot_id"
        )
        return asked.returncode == 0 and asked.stdout.strip() != before

    at_length(rebooted)
    eventually(lambda: " State=IDLE " in on("ctl1", "scontrol -o show node gpu4"))
    assert state(job) == ["COMPLETED"]
