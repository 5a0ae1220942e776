"""Two real Alertmanagers that know each other: a message comes once, also when one of them ends."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playbooks.library.alert_silence import Alertmanager
from roles.alertmanager.tests.live_alertmanager import (
    Alerts,
    Listener,
    certify,
    command,
    configure,
    new_authority,
)
from roles.tls_certificate.plugin_utils.certificates import Authority
from tests import daemons
from tests.patience import until

# Upstream's defaults are for networks that are slow: a peer waits 15 s for the one before it.
QUICK = (
    "--cluster.peer-timeout=2s",
    "--cluster.gossip-interval=50ms",
    "--cluster.settle-timeout=5s",
    "--cluster.reconnect-interval=1s",
)


@dataclass(frozen=True)
class Member:
    alerts: Alerts
    ending: ExitStack

    def status(self) -> Any:
        return Alertmanager(self.alerts.url, "", "", None).ask("GET", "status")["cluster"]

    def peers(self) -> int:
        return len(self.status()["peers"])

    def counted(self) -> str:
        """As the alert AlertmanagerPeerMissing reads it."""
        with urllib.request.urlopen(f"{self.alerts.url}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return next(
            line for line in text.splitlines() if line.startswith("alertmanager_cluster_members")
        )

    def is_ready(self) -> bool:
        return bool(self.status()["status"] == "ready")


@contextlib.contextmanager
def member(
    folder: Path, listener: Listener, authority: Authority, own: str, other: str, *, asks: bool
) -> Iterator[Member]:
    """As the role starts it; `own` and `other` are addresses for gossip."""
    folder.mkdir()
    certify(folder, authority, asks=asks)
    files = {"certificate": "host.crt", "key": "host.key", "authority": "ca.crt"}
    configure(folder, listener, gossip={key: str(folder / name) for key, name in files.items()})
    address = daemons.free_address()
    started = [
        *command(folder, address, own),
        f"--cluster.advertise-address={own}",
        f"--cluster.tls-config={folder / 'cluster.yml'}",
        f"--cluster.peer={other}",
        *QUICK,
    ]
    with ExitStack() as ending:
        url = ending.enter_context(daemons.running(started, address, folder / "log"))
        yield Member(Alerts(url, listener), ending)


def test_what_both_are_told_is_one_message_and_one_of_them_is_enough(tmp_path: Path) -> None:
    first, second = daemons.free_address(), daemons.free_address()
    authority = new_authority()
    with (
        Listener() as listener,
        member(tmp_path / "a", listener, authority, first, second, asks=True) as one,
        member(tmp_path / "b", listener, authority, second, first, asks=True) as other,
    ):
        until(lambda: all(m.peers() == 2 and m.is_ready() for m in (one, other)), 20)
        assert one.counted() == "alertmanager_cluster_members 2"
        alert = {"alertname": "GpuMissing", "severity": "critical", "node": "gpu1"}
        for told in (one, other):
            told.alerts.fire(alert)
        one.alerts.wait("GpuMissing", "gpu1")
        # Another that only the second has: it comes after the second would have told the first.
        other.alerts.fire(alert | {"alertname": "TargetDown", "node": "gpu2"})
        one.alerts.wait("TargetDown", "gpu2")
        assert sum(("GpuMissing", "gpu1") in message for message in listener.messages) == 1
        one.ending.close()
        other.alerts.fire(alert | {"alertname": "GpuXidCritical", "node": "gpu3"})
        other.alerts.wait("GpuXidCritical", "gpu3")


def test_who_has_no_certificate_for_asking_cannot_join(tmp_path: Path) -> None:
    """A compute node's is signed by the same authority, and for servers only."""
    first, second, nobody = (daemons.free_address() for _ in range(3))
    authority = new_authority()
    with (
        Listener() as listener,
        member(tmp_path / "a", listener, authority, first, nobody, asks=True) as one,
        member(tmp_path / "b", listener, authority, second, first, asks=False) as stranger,
    ):
        until(lambda: one.is_ready() and stranger.is_ready(), 20)
        assert (one.peers(), stranger.peers()) == (1, 1)
        assert "bad certificate" in (tmp_path / "b/log").read_text()
