"""Silences that playbooks set and lift, in a real Alertmanager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from playbooks.library import alert_silence
from playbooks.library.alert_silence import Alertmanager, Silence
from roles.alertmanager.tests.live_alertmanager import Alerts, running
from tests.daemons import free_address

BY = "reboot-nodes"


@pytest.fixture(scope="module")
def alerts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alerts]:
    with running(tmp_path_factory.mktemp("alertmanager")) as alerts:
        yield alerts


@pytest.fixture
def alertmanager(alerts: Alerts) -> Iterator[Alertmanager]:
    asked = Alertmanager(alerts.url, "", "", None)
    yield asked
    for document in asked.silences():
        if document["status"]["state"] == "active":
            asked.ask("DELETE", f"silence/{document['id']}")


@pytest.fixture
def silence(alertmanager: Alertmanager) -> Callable[..., alert_silence.Plan]:
    def do(
        *nodes: str, minutes: int = 60, present: bool = True, by: str = BY, check: bool = False
    ) -> alert_silence.Plan:
        start = datetime.now(UTC)
        wanted = Silence("", nodes, "", start, start + timedelta(minutes=minutes), "new kernel")
        return alert_silence.carry_out(alertmanager, by, wanted, present=present, check=check)

    return do


def active(alertmanager: Alertmanager) -> dict[str, tuple[str, str]]:
    """By its nodes, the id and the end of each silence that holds."""
    return {
        document["matchers"][0]["value"]: (document["id"], document["endsAt"])
        for document in alertmanager.silences()
        if document["status"]["state"] == "active"
    }


def test_a_second_run_adds_none_and_a_later_one_extends(
    alertmanager: Alertmanager, silence: Any
) -> None:
    assert silence("gpu1", "gpu2.site").write
    before = active(alertmanager)
    assert list(before) == [r"gpu1|gpu2\.site"]
    again = silence("gpu2.site", "gpu1")
    assert not again.write
    assert not again.lift
    assert active(alertmanager) == before
    assert silence("gpu1", "gpu2.site", minutes=90).write
    ((identity, ends),) = active(alertmanager).values()
    assert identity == before[r"gpu1|gpu2\.site"][0]
    assert ends > before[r"gpu1|gpu2\.site"][1]
    # A shorter time takes nothing away from a run that needs the longer one.
    assert not silence("gpu1", "gpu2.site", minutes=5).write


def test_a_node_is_in_one_silence_and_leaves_it_when_it_is_back(
    alertmanager: Alertmanager, silence: Any
) -> None:
    silence("gpu1", "gpu2", "gpu3")
    ends = active(alertmanager)["gpu1|gpu2|gpu3"][1]
    # A run that was killed left the first three; the next one has other batches.
    silence("gpu3", "gpu4", minutes=120)
    assert set(active(alertmanager)) == {"gpu1|gpu2", "gpu3|gpu4"}
    # The rest of the old one ends when it would have.
    assert active(alertmanager)["gpu1|gpu2"][1][:19] == ends[:19]
    silence("gpu1", "gpu2", "gpu3", present=False)
    assert set(active(alertmanager)) == {"gpu4"}
    silence("gpu4", present=False)
    assert active(alertmanager) == {}
    assert not silence("gpu4", present=False).lift


def test_what_others_silenced_stays(alertmanager: Alertmanager, silence: Any) -> None:
    silence("gpu1", by="update-nodes")
    silence("gpu1")
    silence("gpu1", present=False)
    assert len(active(alertmanager)) == 1
    silence("gpu1", by="update-nodes", present=False)
    # A person made ours wider on the page: it is theirs from then on.
    silence("gpu1")
    (document,) = [d for d in alertmanager.silences() if d["status"]["state"] == "active"]
    wider = {"name": "severity", "value": "warning", "isRegex": False, "isEqual": True}
    matchers = [*document["matchers"], wider]
    alertmanager.ask(
        "POST",
        "silences",
        {key: document[key] for key in ("id", "startsAt", "endsAt", "createdBy", "comment")}
        | {"matchers": matchers},
    )
    assert not silence("gpu1", present=False).lift


def test_check_mode_changes_nothing(alertmanager: Alertmanager, silence: Any) -> None:
    assert silence("gpu1", check=True).write
    assert active(alertmanager) == {}
    silence("gpu1")
    assert silence("gpu1", present=False, check=True).lift
    assert list(active(alertmanager)) == ["gpu1"]


def test_a_silenced_node_is_not_told_and_its_neighbour_is(alerts: Alerts, silence: Any) -> None:
    silence("gpu1")
    for node in ("gpu1", "gpu10", "xgpu1"):
        labels = {"alertname": "GpuMissing", "severity": "critical", "node": node}
        alerts.fire(labels | {"switch": node})
    alerts.wait("GpuMissing", "gpu10", "xgpu1")
    assert "gpu1" not in {node for message in alerts.messages for _, node in message}


def test_an_alertmanager_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    del tmp_path
    nowhere = Alertmanager(f"http://{free_address()}", "", "", None)
    with pytest.raises(alert_silence.Unanswered, match=r"does not answer \(.*refused"):
        nowhere.silences()
