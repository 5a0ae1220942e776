"""Work on nodes: nobody is told of these meanwhile, of all others they are, and afterwards of all.

A node that an operator has silenced is powered off until its alert is due. Meanwhile a playbook
reboots another, and Alertmanager is asked twice a second for its silences.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.live_cluster import operate, sources, under_test, virtual_cluster, words
from tests.patience import until
from tests.web_listener import Listener

CLUSTER = under_test()
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
DUE = 600  # TargetDown waits for three minutes; the rest is room for a slow machine

eventually = partial(until, seconds=DUE)


@dataclass(frozen=True)
class Silence:
    """An active one."""

    by: str
    why: str
    matchers: str

    def names(self, node: str) -> bool:
        return node in self.matchers


def silences(alertmanager: Listener) -> list[Silence]:
    return [
        Silence(entry["createdBy"], entry["comment"], json.dumps(entry["matchers"]))
        for entry in alertmanager.ask("/api/v2/silences").document
        if entry["status"]["state"] == "active"
    ]


def target_down(alertmanager: Listener, node: str) -> list[Any]:
    """What Alertmanager does with the alert of a node that is off: active, or suppressed."""
    return [
        alert["status"]["state"]
        for alert in alertmanager.ask("/api/v2/alerts").document
        if (alert["labels"]["alertname"], alert["labels"].get("node")) == ("TargetDown", node)
    ]


def playbook(name: str, node: str, **values: object) -> str:
    """What it said, as one line."""
    command = ("ansible-playbook", *sources(INVENTORY), f"playbooks/{name}", f"--limit={node}")
    done = operate(*command, "--extra-vars", json.dumps(values), timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return words(done)


def power(verb: str, node: str) -> None:
    done = virtual_cluster(CLUSTER, verb, node)
    assert done.returncode == 0, done.stderr


@contextmanager
def noted(alertmanager: Listener) -> Iterator[list[Silence]]:
    """Every silence that was active meanwhile, once; known afterwards."""
    seen: list[Silence] = []
    over = threading.Event()

    def note() -> None:
        while not over.wait(0.5):
            seen.extend(each for each in silences(alertmanager) if each not in seen)

    noting = threading.Thread(target=note)
    noting.start()
    try:
        yield seen
    finally:
        over.set()
        noting.join()


def test_nobody_is_told_of_nodes_that_are_worked_on(alertmanager: Listener) -> None:
    assert silences(alertmanager) == []
    window = {"alertmanager_silence_hours": 1, "alertmanager_silence_why": "new power supply"}
    assert "Alerts of gpu1 are silent for 1 hour" in playbook("silence.yml", "gpu1", **window)
    (mine,) = silences(alertmanager)
    power("stop", "gpu1")

    with noted(alertmanager) as seen:
        playbook("reboot-nodes.yml", "gpu2", node_reboot_why="new kernel")
    (of_run,) = [each for each in seen if each != mine]
    assert (of_run.by, of_run.why) == ("Plumbline", "new kernel")
    assert of_run.names("gpu2")
    assert not any(of_run.names(other) for other in ("gpu1", "gpu3", "ctl1", "login1"))
    # It has lifted its own, and not the operator's.
    assert silences(alertmanager) == [mine]

    eventually(lambda: target_down(alertmanager, "gpu1") == ["suppressed"])
    playbook("silence.yml", "gpu1", alertmanager_silence_lift=True)
    assert silences(alertmanager) == []
    eventually(lambda: target_down(alertmanager, "gpu1") == ["active"])
    power("start", "gpu1")
    eventually(lambda: target_down(alertmanager, "gpu1") == [])
