"""A real Alertmanager with the role's configuration, and the site's webhook that it tells."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from roles.alertmanager.filter_plugins.alertmanager import files_and_checks
from roles.alertmanager.tests.test_alertmanager_config import NOBODY
from roles.tls_certificate.plugin_utils import certificates
from roles.tls_certificate.plugin_utils.certificates import Authority
from tests import daemons
from tests.checkers import checker
from tests.patience import until

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
        self.url, self._listener = url, listener
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def messages(self) -> list[list[tuple[str, str]]]:
        return self._listener.messages

    def fire(self, *alerts: dict[str, str]) -> None:
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        request = urllib.request.Request(
            f"{self.url}/api/v2/alerts", body, {"Content-Type": "application/json"}
        )
        with self._opener.open(request, timeout=10) as answer:
            assert answer.status == 200

    def wait(self, name: str, *nodes: str) -> None:
        until(lambda: self._listener.told(name) >= {*nodes})


def new_authority() -> Authority:
    return certificates.new_authority("site", datetime.now(UTC), 30)


def certify(folder: Path, authority: Authority, *, asks: bool = False) -> None:
    """A certificate for localhost, its key and the authority."""
    key = certificates.new_key()
    request = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, hashes.SHA256())
    server = certificates.Server(("localhost",), ("127.0.0.1",), asks)
    signed = certificates.signed(request, server, authority, datetime.now(UTC), 20)
    (folder / "host.crt").write_text(signed)
    (folder / "host.key").write_text(certificates.key_pem(key))
    (folder / "ca.crt").write_text(authority.pem)


def configure(folder: Path, listener: Listener | None = None, **settings: Any) -> None:
    told: dict[str, Any] = {"webhook_url": listener.url} if listener else {"webhook": {}}
    made = files_and_checks(SETTINGS | told | settings)
    for name, text in made["files"].items():
        (folder / name).write_text(text)


def command(folder: Path, address: str, cluster: str = "") -> list[str]:
    return [
        *SEPARATE,
        *checker("prometheus-alertmanager"),
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={address}",
        f"--cluster.listen-address={cluster}",
    ]


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[Alerts]:
    with Listener() as listener:
        configure(folder, listener, **settings)
        address = daemons.free_address()
        with daemons.running(command(folder, address), address, folder / "log") as url:
            yield Alerts(url, listener)
