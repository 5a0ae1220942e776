"""A suspect in quarantine: no job ends, none begins, and it returns or is drained.

The playbook is run as an operator runs it; what it did, Slurm and the ledger of nodes say.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

from tests import live_cluster
from tests.live_cluster import operate, sources, under_test
from tests.patience import until

CLUSTER = under_test()
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
SUSPECT = "gpu3"
MARK = "[plumbline:quarantine]"
TORCH = "/usr/lib/python3/dist-packages/torch"

on = partial(live_cluster.on, CLUSTER)
state = partial(live_cluster.ends_of, CLUSTER)
eventually = partial(until, seconds=120)


def quarantine(*options: str, **values: object) -> CompletedProcess[str]:
    quick = {"node_update_quarantine_suite": "quick", "node_update_quarantine_options": []}
    return operate(
        *("ansible-playbook", *sources(INVENTORY), "playbooks/quarantine-nodes.yml"),
        *("--limit", SUSPECT, "-e", json.dumps(quick | values), *options),
        timeout=1500,
    )


def said(run: CompletedProcess[str]) -> str:
    return " ".join(run.stdout.split())


def shown() -> str:
    return on("ctl1", f"scontrol -o show node {SUSPECT}")


def reserved() -> bool:
    return "plumbline-quarantine" in on("ctl1", "scontrol -o show reservation")


def ledger() -> list[str]:
    """What the ledger has of quarantines, the oldest first."""
    lines = on("ctl1", "sudo node-history export").splitlines()
    entries = [json.loads(line) for line in lines]
    of_it = [entry for entry in entries if entry["node"] == SUSPECT]
    return [entry["text"] for entry in of_it if entry["kind"] == "quarantine"]


def submit(seconds: int) -> str:
    words = f"sbatch --parsable --output=/dev/null --nodelist={SUSPECT} --time=1:00:00"
    return on("login1", f"{words} --wrap 'sleep {seconds}'")


def test_a_suspect_with_a_job_is_kept_and_then_proven() -> None:
    running = submit(3600)
    eventually(lambda: state(running) == ["RUNNING"])
    looked = quarantine("--check")
    assert not reserved(), looked.stdout[-3000:]

    first = quarantine(node_update_quarantine_why="three XIDs in a week")
    assert first.returncode != 0
    assert f"{SUSPECT} is kept, and waits for job {running}" in said(first), first.stdout[-3000:]
    assert reserved()
    waiting = submit(1)
    assert state(running) == ["RUNNING"]

    on("login1", f"scancel {running}")
    eventually(lambda: state(running)[:1] == ["CANCELLED"])
    assert state(waiting) == ["PENDING"]
    second = quarantine(node_update_quarantine_wait=60)
    assert second.returncode == 0, second.stdout[-3000:]
    assert not reserved()
    eventually(lambda: state(waiting) == ["COMPLETED"])
    assert ledger()[-2:] == ["suspect: three XIDs in a week", "proven: back in service"]


def test_one_that_does_not_pass_is_drained_and_proven_again_after_its_repair() -> None:
    eventually(lambda: " State=IDLE " in shown())
    on(SUSPECT, f"sudo chmod 0 {TORCH}")
    try:
        failed = quarantine()
        assert failed.returncode != 0
        assert f"{SUSPECT} is drained: " in said(failed), failed.stdout[-3000:]
        assert "DRAIN" in shown()
        assert f"Reason={MARK} " in shown()
        assert not reserved()
        assert ledger()[-1].startswith("drained: ")
    finally:
        on(SUSPECT, f"sudo chmod 755 {TORCH}")
    again = quarantine()
    assert again.returncode == 0, again.stdout[-3000:]
    eventually(lambda: " State=IDLE " in shown())
    assert ledger()[-1] == "proven: back in service"


def test_a_node_that_somebody_drained_is_left_alone() -> None:
    on("ctl1", f"sudo scontrol update nodename={SUSPECT} state=drain reason='bad fan'")
    try:
        run = quarantine()
        assert run.returncode != 0
        assert f"{SUSPECT} is left alone: it is drained (bad fan" in said(run), run.stdout[-3000:]
        assert "bad fan" in shown()
        assert not reserved()
    finally:
        on("ctl1", f"sudo scontrol update nodename={SUSPECT} state=resume")
