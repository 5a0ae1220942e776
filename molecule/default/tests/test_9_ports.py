"""Nothing listens on a node that its roles do not declare, and what wants a password has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ports
from tests.live_cluster import REPOSITORY
from tests.patience import until
from tests.standins.inventories import site
from tests.web_listener import Listener


@pytest.fixture(scope="module")
def declared(operator):
    """By host, the ports of the roles that the playbook gives to it."""
    sources = operator.inventories[1::2]
    by_host = ports.declared(site(*map(Path, sources)), REPOSITORY / "playbooks/slurm-cluster.yml")
    assert {"ctl1", "login1", "gpu1", "gpu2"} <= set(by_host)
    return by_host


@pytest.fixture
def listening(node):
    """A function from a node's name to its listening sockets."""

    def look(name):
        with node(name).sudo():
            sockets = list(ports.sockets(node(name).check_output(ports.SS)))
        # sshd, at the least: who sees nothing has not looked.
        assert "22" in {socket.port for socket in sockets}
        return sockets

    return look


def problems(declared, listening):
    """Of all nodes, a line each."""
    return "\n".join(
        problem
        for name, of in declared.items()
        for problem in ports.problems(name, listening(name), of)
    )


def test_nothing_listens_that_no_role_declares(declared, listening):
    assert problems(declared, listening) == ""


def test_nor_while_a_job_runs(declared, listening, node):
    login = node("login1")
    login.check_output("sh -c 'srun --job-name=ports -N2 sleep 300 >/dev/null 2>&1 &'")
    try:
        until(lambda: any("slurmstepd" in socket.processes for socket in listening("gpu1")))
        assert [socket for socket in listening("login1") if "srun" in socket.processes]
        assert problems(declared, listening) == ""
    finally:
        login.check_output("scancel --name=ports")
        until(lambda: login.check_output("squeue --noheader --name=ports") == "")


def test_one_more_listener_is_told(declared, listening, node):
    with node("gpu1").sudo():
        node("gpu1").check_output(
            "systemd-run --unit=scenario-listener python3 -m http.server 8000"
        )
        try:
            until(lambda: any(socket.port == "8000" for socket in listening("gpu1")))
            [problem] = problems(declared, listening).splitlines()
            assert problem.startswith("gpu1: python3 on tcp 0.0.0.0:8000 listens")
        finally:
            node("gpu1").check_output("systemctl stop scenario-listener")


def test_who_has_no_password_gets_nothing_from_another_node(declared, node):
    endpoints = set()
    for name, of in declared.items():
        other = "login1" if name != "login1" else "ctl1"
        for port in of:
            if port.authentication == "tls+password":
                user, file = next(iter(port.users.items()))
                word = Path(file).read_text().strip()
                listener = Listener(node(other), int(port.port), name)
                listener.is_closed_to_strangers(port.path, user=user, word=word)
                endpoints.add((name, port.role))
    assert {
        ("gpu1", "node_exporter"),
        ("ctl1", "prometheus"),
        ("ctl1", "alertmanager"),
    } <= endpoints
