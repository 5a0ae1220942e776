"""How many messages a real Alertmanager sends, with the role's configuration and a webhook."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from roles.alertmanager.filter_plugins.alertmanager import files_and_checks
from roles.alertmanager.tests.test_alertmanager_config import NOBODY
from tests import daemons
from tests.checkers import checker
from tests.patience import until

NODES = 200
# The distribution's Alertmanager starts only with its templates, which an unpacked package does not
# have in their place. A webhook needs none of them.
WITH_TEMPLATES = """
mount -t tmpfs none /usr/share
mkdir -p /usr/share/prometheus/alertmanager
cd /usr/share/prometheus/alertmanager
touch default.tmpl email.tmpl
cd - >/dev/null
exec "$@"
"""
SEPARATE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", WITH_TEMPLATES, "sh")
SETTINGS = NOBODY | {"webhook": {"file": "unused"}, "group_wait": "1s", "group_interval": "1s"}


class Listener:
    """A site's webhook; `messages` are the alerts of each, by name and node."""

    def __init__(self) -> None:
        self.messages: list[list[tuple[str, str]]] = []
        heard = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                alerts = [alert["labels"] for alert in json.loads(body)["alerts"]]
                heard.append([(alert["alertname"], alert.get("node", "")) for alert in alerts])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Listener:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def told(self, name: str) -> set[str]:
        """The nodes that any message named with this alert."""
        return {node for message in self.messages for alert, node in message if alert == name}


class Alerts:
    """Alertmanager and who listens to it."""

    def __init__(self, url: str, listener: Listener) -> None:
        self._url, self._listener = url, listener
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def messages(self) -> list[list[tuple[str, str]]]:
        return self._listener.messages

    def fire(self, *alerts: dict[str, str]) -> None:
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        request = urllib.request.Request(
            f"{self._url}/api/v2/alerts", body, {"Content-Type": "application/json"}
        )
        with self._opener.open(request, timeout=10) as answer:
            assert answer.status == 200

    def wait(self, name: str, *nodes: str) -> None:
        until(lambda: self._listener.told(name) >= {*nodes})


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[Alerts]:
    with Listener() as listener:
        made = files_and_checks(SETTINGS | {"webhook_url": listener.url} | settings)
        (folder / "alertmanager.yml").write_text(made["files"]["alertmanager.yml"])
        address = daemons.free_address()
        command = [
            *SEPARATE,
            *checker("prometheus-alertmanager"),
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ]
        with daemons.running(command, address, folder / "log") as url:
            yield Alerts(url, listener)


def down(node: str, group: str = "compute", **more: str) -> dict[str, str]:
    labels = {"alertname": "TargetDown", "severity": "critical", "job": "node"}
    return labels | {"node": node, "group": group, **more}


def critical(name: str, node: str, **more: str) -> dict[str, str]:
    return {"alertname": name, "severity": "critical", "node": node, **more}


def test_nodes_behind_a_dead_switch_are_one_message_and_a_controller_another(
    tmp_path: Path,
) -> None:
    nodes = [f"gpu{number}" for number in range(NODES)]
    with running(tmp_path) as alerts:
        alerts.fire(
            *(down(node, switch="leaf1") for node in nodes),
            *(critical("InfinibandPortDown", node) for node in nodes),
        )
        alerts.wait("TargetDown", *nodes)
        # What is on a node that is away is not told; those behind another switch are.
        alerts.fire(down("gpu900", switch="leaf2"), down("ctl1", group="controller"))
        alerts.wait("TargetDown", "gpu900", "ctl1")
        messages = [sorted({name for name, _ in message}) for message in alerts.messages]
        assert messages == [["TargetDown"]] * 3
        assert sorted(map(len, alerts.messages)) == [1, 1, NODES]


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
