"""Who has a port, asked of this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from playbooks.library import free_port


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def port(request):
    with socket.socket(request.param) as listener:
        try:
            listener.bind(("localhost" if request.param == socket.AF_INET else "::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
        listener.listen()
        yield listener.getsockname()[1]


def test_who_listens_is_named(port):
    own = Path("/proc/self/comm").read_text().strip()
    assert [*free_port.holders(port)] == [os.getpid()]
    assert free_port.taken_by(port, "prometheus") == f"{own} (process {os.getpid()})"


def test_a_port_that_is_only_connected_from_is_free():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        assert free_port.taken_by(client.getsockname()[1], "prometheus") == ""


def test_nobody_has_a_free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        assert free_port.taken_by(listener.getsockname()[1], "prometheus") == ""


@pytest.mark.parametrize(
    ("cgroup", "its"),
    [
        ("0::/system.slice/prometheus.service", True),
        ("12:cpu:/\n0::/system.slice/prometheus.service/x", True),
        ("0::/system.slice/prometheus-alertmanager.service", False),
        ("0::/user.slice", False),
    ],
)
def test_the_daemon_itself_may_have_it(tmp_path, cgroup, its):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text(cgroup + "\n")
    assert free_port.is_of(7, "prometheus", tmp_path) is its
