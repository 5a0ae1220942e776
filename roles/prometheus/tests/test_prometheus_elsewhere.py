"""A Prometheus of the site's own, and one that ours writes to: real ones, over TLS, on loopback."""

from __future__ import annotations

import json
import ssl
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from playbooks.plugin_utils import documents, web
from roles.prometheus.filter_plugins import prometheus
from roles.tls_certificate.plugin_utils import certificates
from tests import daemons
from tests.checkers import checker
from tests.patience import until

WORD = "a-password-for-the-test"
SETTINGS: dict[str, Any] = {
    "user": "server",
    "password_file": "password",
    "scrape_user": "prometheus",
    "scrape_password_file": "password",
    "authority": "ca.crt",
    "alertmanagers": [],
    "alertmanager_configs": [],
    "replica_label": "",
    "name": "mon1",
    "scrape_interval": "1s",
    "external_labels": {"cluster": "site"},
    "scrape_configs": [],
    "remote_write": [],
    "runbooks": "",
}


@dataclass(frozen=True)
class Server:
    """A Prometheus that wants a password; each is an exporter, of itself, to the others."""

    url: str
    folder: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def query(self, expression: str) -> dict[str, float]:
        """The value of each series, by its instance."""
        answer = self.ask(f"/api/v1/query?query={urllib.parse.quote(expression)}")
        result = json.loads(answer)["data"]["result"]
        return {item["metric"].get("instance", ""): float(item["value"][1]) for item in result}

    def tells(self, metric: str) -> float:
        """The sum of the series that it tells of itself."""
        lines = [line for line in self.ask("/metrics").splitlines() if line.startswith(metric)]
        assert lines
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def ask(self, path: str) -> str:
        tls = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )
        basic = b64encode(f"prometheus:{WORD}".encode()).decode()
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": f"Basic {basic}"}
        )
        with opener.open(request, timeout=10) as answer:
            text: bytes = answer.read()
        return text.decode()


@contextmanager
def serving(folder: Path, files: Mapping[str, str], *arguments: str) -> Iterator[Server]:
    """A Prometheus with these files, and a certificate for localhost of the folder's authority."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    address = daemons.free_address()
    command = [
        *checker("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        f"--web.config.file={folder / 'web.yml'}",
        *arguments,
    ]
    with daemons.running(command, address, folder / "log", authority=folder / "ca.crt"):
        yield Server(f"https://localhost:{address.rpartition(':')[2]}", folder)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two, each with certificate, key, password and users of the same site."""
    now = datetime.now(UTC)
    authority = certificates.new_authority("site", now, 30)
    key = certificates.new_key()
    request = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, hashes.SHA256())
    server = certificates.Server(("localhost",), ("127.0.0.1",))
    signed = certificates.signed(request, server, authority, now, 20)
    listener = web.web_config(
        {"prometheus": web.hashed("prometheus", WORD)}, "host.crt", "host.key"
    )
    made = tmp_path / "one", tmp_path / "two"
    for folder in made:
        folder.mkdir()
        (folder / "host.crt").write_text(signed)
        (folder / "host.key").write_text(certificates.key_pem(key))
        (folder / "ca.crt").write_text(authority.pem)
        (folder / "web.yml").write_text(documents.to_yaml(listener))
        for name in ("password", "scrape_password"):
            (folder / name).write_text(WORD)
    return made


def job(name: str, port: int) -> dict[str, Any]:
    return {"name": name, "port": port}


def test_a_prometheus_of_the_site_scrapes_by_what_is_exported(folders: tuple[Path, Path]) -> None:
    ours, theirs = folders
    empty = {"prometheus.yml": "{}\n"}
    with serving(ours, empty) as exporter:
        jobs = [job("node", exporter.port), {**job("prometheus", 9090), "server": True}]
        hosts = [{"name": "localhost", "labels": {"group": "compute", "rack": "r1"}}]
        files = prometheus.exported(jobs, hosts, SETTINGS, [])
        own = prometheus.files(jobs, hosts, SETTINGS, [])
        same = {name for name in files if own.get(name) == files[name]}
        assert same == set(files) - {"scrape_configs.yml"}
        assert "targets/prometheus.json" not in files
        # What the page tells a site to write; scrape_config_files does the same from 2.43 on.
        document = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "rule_files": ["rules/*.yml"],
            **yaml.safe_load(files["scrape_configs.yml"]),
        }
        with serving(theirs, files | {"prometheus.yml": yaml.safe_dump(document)}) as site:
            wanted = 'up{job="node",node="localhost",rack="r1"}'
            instance = f"localhost:{exporter.port}"
            until(lambda: site.query(wanted) == {instance: 1.0}, seconds=20)
            assert set(site.query("ALERTS")) <= {""} | {instance}
            (theirs / "scrape_password").write_text("another")
            until(lambda: site.query(wanted) == {instance: 0.0}, seconds=20)


def test_what_ours_writes_elsewhere_arrives_and_a_refusal_is_counted(
    folders: tuple[Path, Path],
) -> None:
    ours, theirs = folders
    failed = "prometheus_remote_storage_samples_failed_total"
    receiver = "--web.enable-remote-write-receiver"
    with serving(theirs, {"prometheus.yml": "{}\n"}, receiver) as store:
        write = {
            "url": f"{store.url}/api/v1/write",
            "basic_auth": {"username": "prometheus", "password_file": "password"},
            "tls_config": {"ca_file": "ca.crt"},
            "queue_config": {"batch_send_deadline": "1s"},
            "write_relabel_configs": [{"target_label": "replica", "replacement": "mon1"}],
        }
        settings = SETTINGS | {"remote_write": [write], "scrape_password_file": "scrape_password"}
        hosts = [{"name": "localhost"}]
        files = prometheus.files([job("node", store.port)], hosts, settings, [])
        with serving(ours, files) as writer:
            arrived = 'up{cluster="site",replica="mon1",job="node"}'
            until(lambda: store.query(arrived) == {f"localhost:{store.port}": 1.0}, seconds=30)
            assert writer.tells(failed) == 0
            (ours / "password").write_text("another")
            until(lambda: writer.tells(failed) > 0, seconds=30)
