"""Prometheus, Alertmanager and node_exporter out of archives as upstream publishes them."""

import pytest

from tests.patience import until
from tests.role_play import refused
from tests.web_listener import Listener

SERVICES = ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter")


@pytest.fixture
def prometheus(host):
    return Listener(host, 9090)


def program(host, service: str) -> str:
    """The file that a service runs."""
    pid = host.check_output(f"systemctl show {service} --property=MainPID --value")
    with host.sudo():
        return host.check_output(f"readlink /proc/{pid}/exe")


def three_are_up(prometheus) -> bool:
    return len(prometheus.query("up == 1")) == 3


@pytest.mark.parametrize("service", SERVICES)
def test_what_runs_is_the_releases_program(host, service):
    assert program(host, service).startswith("/opt/plumbline/")


def test_they_find_each_other_over_tls(prometheus):
    until(lambda: three_are_up(prometheus))
    prometheus.is_closed_to_strangers("/api/v1/status/config")


def test_another_archive_than_the_one_that_was_named_is_refused_and_nothing_stops(host, play):
    before = program(host, "prometheus")
    done = play(prometheus_release_sha256="0" * 64)
    refused(done, "is pinned; it is another file")
    assert program(host, "prometheus") == before
    assert host.service("prometheus").is_running


def test_what_an_interrupted_run_unpacked_half_is_unpacked_anew(host, play):
    whole = program(host, "prometheus")
    with host.sudo():
        folder = host.check_output(f"dirname {whole}")
        host.check_output(f"truncate --size=1000 {folder}/promtool")
    assert play().code == 0
    assert host.run(f"{folder}/promtool --version").rc == 0
    assert play().changed == 0


def test_the_distributions_takes_its_place_and_it_the_distributions(host, play, prometheus):
    assert play(prometheus_source="distribution").code == 0
    assert program(host, "prometheus") == "/usr/bin/prometheus"
    until(lambda: three_are_up(prometheus))
    assert play().code == 0
    assert program(host, "prometheus").startswith("/opt/plumbline/")
    until(lambda: three_are_up(prometheus))
    assert play().changed == 0
