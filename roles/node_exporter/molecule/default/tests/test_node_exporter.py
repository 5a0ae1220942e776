"""The exporter on one node, asked as Prometheus asks it, and by strangers."""

import pytest

from tests.role_play import Case
from tests.web_listener import SECRETS, Listener, password

SERVICE = "prometheus-node-exporter"


@pytest.fixture
def exporter(host):
    return Listener(host, 9100)


def started(host) -> str:
    return host.check_output(f"systemctl show {SERVICE} --property=ActiveEnterTimestampMonotonic")


def test_nobody_is_answered_without_a_password_over_tls(exporter):
    exporter.is_closed_to_strangers("/metrics")


def test_it_tells_of_the_host_its_services_and_its_certificates(exporter):
    text = exporter.ask("/metrics").text
    assert "node_load1 " in text
    assert f'node_systemd_unit_state{{name="{SERVICE}.service",state="active"' in text
    assert 'name="dbus.service"' not in text  # only those that were asked for
    path = "/etc/plumbline/tls/host.crt"
    assert f'plumbline_certificate_expiry_timestamp_seconds{{path="{path}"}} ' in text
    assert "node_textfile_scrape_error 0" in text


def test_hosts_have_hashes_and_no_password(host):
    with host.sudo():
        assert host.run(f"grep -rF {password('prometheus')} /etc").rc != 0
        web = host.file("/etc/plumbline/node_exporter/web.yml")
        assert (web.user, web.group, web.mode) == ("root", "prometheus", 0o640)


def test_users_read_no_textfile_of_others(host):
    folder = "/var/lib/prometheus/node-exporter"
    with host.sudo():
        found = host.file(folder)
        assert (found.user, found.group, found.mode) == ("root", "prometheus", 0o750)
        for command in (f"ls {folder}", f"cat {folder}/plumbline_certificates.prom"):
            assert host.run(f"runuser -u nobody -- {command}").rc != 0


@pytest.mark.long
def test_another_password_counts_at_once_and_restarts_nothing(host, play, exporter):
    file = SECRETS / "monitoring_prometheus_password"
    before, kept = started(host), file.read_text()
    file.write_text("another password of the site\n")
    try:
        assert play().code == 0
        assert exporter.ask("/metrics").status == 200
        assert exporter.ask("/metrics", word=kept.strip()).status == 401
    finally:
        file.write_text(kept)
        assert play().code == 0
    assert started(host) == before
    assert exporter.ask("/metrics").status == 200


def test_what_cannot_work_is_refused_and_the_exporter_runs_on(host, attempts, exporter, tmp_path):
    squatter = (
        "systemd-run --unit=squatter python3 -c "
        "'import socket, time; s = socket.create_server((\"\", 9199)); time.sleep(600)' 2>&1; "
        "until ss -Hltn | grep -q :9199; do sleep 0.1; done"
    )
    file = tmp_path / "password"
    file.write_text("short\n")
    file.chmod(0o600)
    before = started(host)
    outcomes = attempts(
        [
            Case(
                "port",
                {"node_exporter_port": 9199},
                breaks=squatter,
                mends="systemctl stop squatter",
            ),
            Case("password", {"node_exporter_users": {"prometheus": str(file)}}),
        ]
    )
    outcomes["port"].refuses("port 9199 is taken by python3 (process")
    outcomes["password"].refuses("has 5 characters; give it 16")
    assert started(host) == before
    assert exporter.ask("/metrics").status == 200


def test_it_comes_back_after_a_reboot(host):
    assert host.service(SERVICE).is_enabled
    assert host.service(SERVICE).is_running
