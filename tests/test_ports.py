"""Which sockets of a host its roles' declarations cover; the table of docs/reference/ports.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster import contract
from tests import ports
from tests.ports import Port, Socket, problems, sockets
from tests.standins.inventories import REPOSITORY, good, site, write

ROLES = sorted(path.parents[1] for path in ports.ROLES.glob("*/meta/ports.yml"))
WRITTEN = [ports.port(role.name, written) for role in ROLES for written in ports.read(role)]

# As a controller's, of iproute2 6.15.
OUTPUT = """\
u_dgr UNCONN 0 0 /run/chrony/chronyd.sock 23490732 * 0 users:(("chronyd",pid=788,fd=7))
u_str UNCONN 0 0 * 23761397 * 0 users:(("python3",pid=4477,fd=6))
u_str LISTEN 0 256 /run/munge/munge.socket.2 23503398 * 0 users:(("munged",pid=1060,fd=6))
udp UNCONN 0 0 127.0.0.53%lo:53 0.0.0.0:* users:(("systemd-resolve",pid=9,fd=5))
udp UNCONN 0 0 [::1]:323 [::]:* users:(("chronyd",pid=788,fd=6))
tcp LISTEN 0 64 0.0.0.0:2049 0.0.0.0:*
tcp LISTEN 0 4096 *:9093 *:* users:(("prometheus-aler",pid=4136,fd=3))
tcp LISTEN 0 4096 *:9000 *:* users:(("systemd-journal",pid=55,fd=4),("systemd",pid=1,fd=58))
"""


def port(**changes: Any) -> Port:
    fields: dict[str, Any] = {
        "role": "paint",
        "process": ("paintd",),
        "port": "7000",
        "where": "every host",
        "asked_by": "painters",
        "authentication": "munge",
    }
    return Port(**(fields | changes))


PAINTD = Socket("tcp", "0.0.0.0", "7000", ("paintd",))


def test_the_output_of_ss_is_read():
    assert list(sockets(OUTPUT)) == [
        Socket("unix", "", "/run/chrony/chronyd.sock", ("chronyd",)),
        Socket("unix", "", "/run/munge/munge.socket.2", ("munged",)),
        Socket("udp", "127.0.0.53", "53", ("systemd-resolve",)),
        Socket("udp", "[::1]", "323", ("chronyd",)),
        Socket("tcp", "0.0.0.0", "2049", ()),
        Socket("tcp", "*", "9093", ("prometheus-aler",)),
        Socket("tcp", "*", "9000", ("systemd-journal", "systemd")),
    ]


def test_output_of_another_kind_is_not_passed_over():
    with pytest.raises(AssertionError):
        list(sockets("sctp LISTEN 0 4096 *:9093 *:*\n"))
    with pytest.raises(ValueError, match="unpack"):
        list(sockets("Cannot open netlink socket\n"))


def test_what_is_declared_may_listen():
    assert problems("ctl1", [PAINTD], [port()]) == []


@pytest.mark.parametrize(
    "socket",
    [
        replace(PAINTD, port="7001"),
        replace(PAINTD, protocol="udp"),
        replace(PAINTD, processes=("python3",)),
        replace(PAINTD, processes=()),
        Socket("unix", "", "/run/paintd.sock", ("paintd",)),
        Socket("unix", "", "@abstract", ("paintd",)),
    ],
    ids=str,
)
def test_one_more_listener_is_named(socket):
    assert problems("ctl1", [PAINTD, socket], [port()]) == [
        f"ctl1: {socket} listens, and no role of the host declares it"
    ]


def test_it_is_named_by_process_protocol_address_and_port():
    assert str(PAINTD) == "paintd on tcp 0.0.0.0:7000"
    assert str(replace(PAINTD, processes=())) == "the kernel on tcp 0.0.0.0:7000"
    assert str(Socket("unix", "", "/run/x", ("a", "b"))) == "a/b on unix /run/x"


@pytest.mark.parametrize("address", ["0.0.0.0", "[::]", "*", "10.0.0.1"])
def test_what_is_declared_for_loopback_may_not_listen_for_all(address):
    ours = port(address="loopback")
    there = [replace(PAINTD, address=address)]
    [sentence] = problems("ctl1", there, [ours])
    assert sentence.endswith("listens for all, and paint declares it for loopback")
    assert problems("ctl1", there, [ours, port()]) == []  # another declaration allows it
    for local in ("127.0.0.1", "127.0.0.53", "[::1]"):
        assert problems("ctl1", [replace(PAINTD, address=local)], [ours]) == []


def test_a_port_that_others_await_is_there():
    sentence = "ctl1: paintd on tcp 7000 does not listen, and paint declares it"
    assert problems("ctl1", [], [port()]) == [sentence]
    others = [port(address="loopback"), port(port="any"), port(port="7000-7010")]
    others.append(port(protocol="unix", port="/run/paint/*"))
    assert problems("ctl1", [], others) == []


def test_ranges_globs_and_names_that_the_kernel_cuts():
    for number, inside in (("6999", False), ("7000", True), ("7010", True), ("7011", False)):
        assert port(port="7000-7010").is_of(replace(PAINTD, port=number)) is inside
    assert port(port="any").is_of(PAINTD)
    unix = port(protocol="unix", port="/run/paint/*")
    assert unix.is_of(Socket("unix", "", "/run/paint/a.sock", ("paintd",)))
    assert not unix.is_of(Socket("unix", "", "/run/other/a.sock", ("paintd",)))
    long = port(process=("painter", "prometheus-node-exporter"))
    assert long.is_of(replace(PAINTD, processes=("prometheus-node",)))


# --- the declarations of the roles ---------------------------------------------------------------


@pytest.mark.parametrize(
    "entry", WRITTEN, ids=lambda entry: f"{entry.role}: {entry}, {entry.authentication}"
)
def test_a_declaration_says_who_may_ask(entry):
    assert entry.authentication in ports.AUTHENTICATION
    assert entry.protocol in {"tcp", "udp", "unix"}
    assert entry.address in {"all", "loopback"}
    assert entry.where
    assert entry.asked_by
    assert bool(entry.reason) == (entry.authentication == "none")
    others_come = entry.protocol != "unix" and entry.address == "all"
    assert bool(entry.let_in) == others_come
    words = {*contract.load().peers, "people", "operators"}
    assert isinstance(entry.let_in, str) or set(entry.let_in) <= words
    assert bool(entry.path) == bool(entry.users) == (entry.authentication == "tls+password")


def test_the_table_of_the_page_is_made_of_them():
    text = ports.PAGE.read_text(encoding="utf-8")
    assert text.count(ports.BEGIN) == text.count(ports.END) == 1
    assert text == ports.page_with(text, ports.table()), "run: python -m tests.ports"
    assert ports.table().count("\n") == len(WRITTEN) + 2


def by_host(tmp_path, cluster, **variables):
    read = site(write(tmp_path / "i", cluster, {"group_vars/all.yml": variables}))
    declared = ports.declared(read, REPOSITORY / "playbooks/slurm-cluster.yml")
    return {host: {(entry.process[0], entry.port) for entry in of} for host, of in declared.items()}


def test_a_host_has_the_ports_of_its_roles(tmp_path):
    cluster = good() | {"monitoring": {"hosts": {"ctl1": {}}}}
    declared = by_host(tmp_path, cluster)
    assert {("slurmctld", "6817"), ("slurmdbd", "6819"), ("prometheus", "9090")} < declared["ctl1"]
    assert ("slurmd", "6818") in declared["gpu1"]
    assert ("prometheus-node-exporter", "9100") in declared["login1"]
    assert not {"slurmd", "slurmctld", "slurmdbd", "mariadbd"} & {p for p, _ in declared["login1"]}
    assert not {"slurmctld", "rsyslogd", "prometheus"} & {p for p, _ in declared["gpu1"]}


def test_a_port_that_a_site_sets_is_the_one(tmp_path):
    declared = by_host(
        tmp_path,
        good(),
        slurm_settings={"SlurmdPort": 7818, "SrunPortRange": "60001-63000"},
        node_exporter_port=9200,
        log_collection_host="login1",
    )
    assert {("slurmd", "7818"), ("srun", "60001-63000")} < declared["gpu1"]
    assert ("prometheus-node-exporter", "9200") in declared["ctl1"]
    assert [host for host, of in declared.items() if ("rsyslogd", "6514") in of] == ["login1"]


def test_alertmanagers_gossip_where_there_are_two(tmp_path):
    def gossiping(folder, *monitors):
        cluster = good() | {"monitoring": {"hosts": {name: {} for name in monitors}}}
        declared = by_host(tmp_path / folder, cluster)
        return [host for host, of in declared.items() if ("prometheus-alertmanager", "9094") in of]

    assert gossiping("one", "ctl1") == []
    assert sorted(gossiping("two", "ctl1", "login1")) == ["ctl1", "login1"]


def test_passwords_are_where_the_inventory_says(tmp_path):
    cluster = good() | {"monitoring": {"hosts": {"ctl1": {}}}}
    read = site(write(tmp_path / "i", cluster, {"group_vars/all.yml": {"cluster_secrets": "/s"}}))
    declared = ports.declared(read, REPOSITORY / "playbooks/slurm-cluster.yml")
    users = {entry.role: entry.users for of in declared.values() for entry in of if entry.users}
    assert users["node_exporter"] == {"prometheus": "/s/monitoring_prometheus_password"}
    # Nodes learn the exporters' password, and users of job-report its own: neither opens more.
    of_servers = [*users["prometheus"].values(), *users["alertmanager"].values()]
    assert not {*users["node_exporter"].values()} & {*of_servers}
    # Whoever may ask Alertmanager may silence it: none of those who only read metrics.
    silencing = {users["prometheus"][name] for name in ("server", "admin")}
    assert {*users["alertmanager"].values()} == silencing
    assert len({*users["prometheus"].values()}) == len(users["prometheus"])
