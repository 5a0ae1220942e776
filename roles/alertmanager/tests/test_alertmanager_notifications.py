"""How many messages a real Alertmanager sends, with the role's configuration and a webhook."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from playbooks.library import alert_silence
from playbooks.library.alert_silence import Alertmanager, Silence
from roles.alertmanager.tests.live_alertmanager import Listener, running
from tests.patience import until

NODES, SILENT = 960, 800


def down(node: str, group: str = "compute", **more: str) -> dict[str, str]:
    labels = {"alertname": "TargetDown", "severity": "critical", "job": "node"}
    return labels | {"node": node, "group": group, **more}


def names(message: Iterable[tuple[str, str]]) -> set[str]:
    return {name for name, _ in message}


def critical(name: str, node: str, **more: str) -> dict[str, str]:
    return {"alertname": name, "severity": "critical", "node": node, **more}


def test_a_fleet_with_a_silenced_rack_a_dead_switch_and_a_dead_controller(tmp_path: Path) -> None:
    nodes = [f"gpu{number:03}" for number in range(NODES)]
    silent, behind = nodes[:SILENT], nodes[SILENT : SILENT + 64]
    with running(tmp_path) as alerts:
        start = datetime.now(UTC)
        window = Silence("", tuple(silent), "", start, start + timedelta(hours=4), "new PDUs")
        alert_silence.carry_out(
            Alertmanager(alerts.url, "", "", None), "test", window, present=True, check=False
        )
        alerts.fire(
            *(down(node, switch=f"leaf{number // 64}") for number, node in enumerate(silent)),
            *(critical("InfinibandPortDown", node) for node in silent),
            *(down(node, switch="leaf90") for node in behind),
            *(critical("InfinibandPortDown", node) for node in behind),
            *(critical("SlurmNodeDown", node, switch="leaf90") for node in behind),
            down("ctl1", group="controller"),
            critical("SlurmctldDown", "ctl1", group="controller"),
        )
        alerts.wait("TargetDown", *behind, "ctl1")
        alerts.wait("SlurmctldDown", "ctl1")
        # Those of another switch, later, are another message at once.
        alerts.fire(down(nodes[-1], switch="leaf91"))
        alerts.wait("TargetDown", nodes[-1])
        told = {node for message in alerts.messages for _, node in message}
        assert told == {*behind, "ctl1", nodes[-1]}
        switch = [message for message in alerts.messages if {n for _, n in message} & {*behind}]
        assert [len(message) for message in switch] == [len(behind)]
        controller = [
            names(message) for message in alerts.messages if ("TargetDown", "ctl1") in message
        ]
        assert controller == [{"TargetDown"}]
        assert len(alerts.messages) == 4


def test_a_dead_mans_switch_hears_of_its_alert_and_people_do_not(tmp_path: Path) -> None:
    with Listener() as switch:
        deadman = {"url": switch.url, "url_file": "", "interval": "2s"}
        with running(tmp_path, deadman=deadman, routes=[{"receiver": "operators"}]) as alerts:
            alerts.fire(
                {"alertname": "Watchdog", "severity": "none"}, critical("GpuMissing", "gpu1")
            )
            alerts.wait("GpuMissing", "gpu1")
            until(lambda: len(switch.messages) > 1)
            assert {name for message in switch.messages for name, _ in message} == {"Watchdog"}
            assert {name for message in alerts.messages for name, _ in message} == {"GpuMissing"}


def test_a_message_for_each_node_is_a_sites_choice(tmp_path: Path) -> None:
    with running(tmp_path, group_by=["alertname", "node"]) as alerts:
        alerts.fire(*(down(f"gpu{number}", switch="leaf1") for number in range(3)))
        alerts.wait("TargetDown", "gpu0", "gpu1", "gpu2")
        assert list(map(len, alerts.messages)) == [1, 1, 1]


@pytest.mark.parametrize(
    ("source", "hidden"),
    [
        (down("ctl1", group="controller"), False),
        (critical("NodeRebooted", "ctl1", group="controller"), False),
        (down("ctl1", group="login"), True),
        (critical("NodeRebooted", "ctl1", group="compute"), True),
    ],
)
def test_nothing_hides_what_a_controller_lacks(
    tmp_path: Path, source: dict[str, str], hidden: bool
) -> None:
    with running(tmp_path) as alerts:
        alerts.fire(source)
        alerts.wait(source["alertname"], "ctl1")
        alerts.fire(critical("SlurmctldDown", "ctl1"), critical("SlurmctldDown", "ctl2"))
        alerts.wait("SlurmctldDown", "ctl2")
        told = {node for message in alerts.messages for name, node in message if "Slurm" in name}
        assert told == ({"ctl2"} if hidden else {"ctl1", "ctl2"})
