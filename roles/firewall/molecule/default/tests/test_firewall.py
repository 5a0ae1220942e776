"""The firewall of a node: who gets in, what is undone by itself, and what is left alone."""

from __future__ import annotations

import socket
from contextlib import contextmanager

import pytest

from tests.patience import until
from tests.role_play import Case, refused

FILE = "/etc/plumbline/firewall.nft"
SHOW = "nft --stateless list table inet plumbline"
UNDO = "plumbline-firewall-undo.timer"
PATIENCE_S = 3  # a packet that is dropped is never answered


def is_open(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=PATIENCE_S):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def address(host):
    """Where this machine reaches the node."""
    return host.check_output("hostname --all-ip-addresses").split()[0]


@pytest.fixture
def listeners(host):
    """Programs that listen on the node, whatever the firewall says."""
    with host.sudo():
        for port in (7001, 7002, 7010, 8000):
            host.check_output(f"systemd-run --unit=scenario-{port} python3 -m http.server {port}")
        until(lambda: host.run("ss -Hltn sport = :8000").stdout)
    yield
    with host.sudo():
        host.run("systemctl stop 'scenario-*'")


def table(host):
    with host.sudo():
        return host.check_output(SHOW)


def open_ports(address):
    return {port for port in (22, 7001, 7002, 7010, 8000) if is_open(address, port)}


@contextmanager
def without_the_table(host):
    with host.sudo():
        host.check_output("nft delete table inet plumbline")
    try:
        yield
    finally:
        with host.sudo():
            host.check_output(f"nft --file {FILE}")


def test_it_lets_in_who_is_named_and_nobody_else(host, address, listeners):
    assert open_ports(address) == {22, 7001}
    with without_the_table(host):
        assert open_ports(address) == {22, 7001, 7002, 7010, 8000}
    assert open_ports(address) == {22, 7001}


def test_the_host_reaches_itself_and_answers_to_ping(host, address, listeners):
    for target in ("127.0.0.1", address):
        assert host.run(f"timeout 5 bash -c '</dev/tcp/{target}/8000'").rc == 0
    assert "policy drop" in table(host)


def test_root_alone_reads_the_rules_and_each_boot_loads_them(host):
    with host.sudo():
        file = host.file(FILE)
        assert (file.user, file.mode) == ("root", 0o600)
    unit = host.service("plumbline-firewall")
    assert unit.is_enabled
    assert unit.is_running
    # The distribution's would remove everybody's rules.
    assert not host.service("nftables").is_enabled


@pytest.mark.long
def test_what_somebody_changed_in_the_table_is_put_right(host, attempts):
    before = table(host)
    more = "nft add rule inet plumbline input tcp dport 8000 accept"
    cases = [
        Case("rule", breaks=more, mends=SHOW),
        Case("set", breaks="nft add element inet plumbline neighbours_v4 { 192.0.2.9 }"),
        Case("table", breaks="nft delete table inet plumbline"),
        Case("flush", breaks="nft flush ruleset"),
        Case("file", breaks=f"echo >> {FILE}"),
        Case("boot", breaks="systemctl disable plumbline-firewall"),
        Case("again"),
    ]
    outcomes = attempts(cases)
    for case in cases[:-1]:
        outcomes[case.name].passes(changed=True)
    outcomes["again"].passes(changed=False)
    assert table(host) == before
    with host.sudo():
        assert host.run(f"systemctl is-active {UNDO}").rc != 0


@pytest.mark.long
def test_rules_of_others_are_left_alone(host, play):
    others = (
        "table ip scenario { chain input { type filter hook input priority 5; policy accept; }; }"
    )
    with host.sudo():
        host.check_output(f"echo '{others}' | nft --file -")
        before = host.check_output("nft list table ip scenario")
    run = play(firewall_allow=[{"port": "8000", "from": ["anywhere"]}])
    assert run.code == 0, run.output
    assert "tcp dport 8000 accept" in table(host)
    off = play(firewall_enabled=False)
    assert (off.code, off.changed) == (0, 1), off.output
    with host.sudo():
        assert host.check_output("nft list table ip scenario") == before
        assert "plumbline" not in host.check_output("nft list ruleset")
        assert not host.file(FILE).exists
        assert not host.file("/etc/systemd/system/plumbline-firewall.service").exists
        host.check_output("nft delete table ip scenario")
    again = play(firewall_enabled=False)
    assert (again.code, again.changed) == (0, 0), again.output
    assert play().code == 0


def test_what_would_cut_the_run_off_is_undone_by_itself(host, address, play):
    before = table(host)
    run = play(firewall_ssh_from=["192.0.2.1"], firewall_undo_after=8)
    refused(run, "did not answer a new connection of this run, so they were undone after 8 seconds")
    assert "from 192.0.2.1." in run.output
    assert table(host) == before
    assert is_open(address, 22)
    with host.sudo():
        assert "192.0.2.1 " not in host.file(FILE).content_string
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output


@pytest.mark.long
def test_another_firewall_that_drops_is_refused(host, attempts):
    table_of = (
        "table inet site { chain inbound { type filter hook input priority 5; policy drop; }; }"
    )
    # What it drops is what the run would need: so the run's own packets pass before.
    accept = table_of.replace("policy drop; }", "policy drop; accept; }")
    begin = f"echo '{accept}' | nft --file -"
    end = "nft delete table inet site"
    outcomes = attempts(
        [
            Case("refused", breaks=begin, mends="true"),
            Case("accepted", {"firewall_beside_others": True}, mends=end),
        ]
    )
    outcomes["refused"].refuses("has another firewall (chain inbound of table inet site)")
    outcomes["accepted"].passes(changed=False)


def test_what_nft_does_not_take_changes_nothing(host, attempts):
    before = table(host)
    cases = [
        Case("peer", {"firewall_peers": {"everybody": ["gpu1"], "neighbours": [], "nobody": []}})
    ]
    attempts(cases)["peer"].refuses("nft does not take the rules, and the old ones stay")
    assert table(host) == before


# --- beside others -------------------------------------------------------------------------------


@pytest.mark.long
def test_the_distributions_unit_may_run_as_well(host, play):
    """It removes everybody's rules when it starts, is reloaded or stops."""
    before = table(host)
    with host.sudo():
        for verb in ("start", "reload", "restart"):
            host.check_output(f"systemctl {verb} nftables.service")
            until(lambda: host.run(SHOW).stdout == before)
        host.check_output("systemctl stop nftables.service")
        assert host.run(SHOW).rc != 0
    run = play()
    assert (run.code, run.changed > 0) == (0, True), run.output
    assert table(host) == before


@pytest.mark.long
def test_firewalld_is_refused_and_accepted_where_the_site_says_so(host, attempts):
    with host.sudo():
        host.check_output("apt-get install --yes --no-install-recommends firewalld")
        until(lambda: host.run("systemctl is-active firewalld").rc == 0)
    try:
        outcomes = attempts(
            [
                Case("refused"),
                Case("accepted", {"firewall_beside_others": True}, mends=f"{SHOW} | wc --lines"),
            ]
        )
        outcomes["refused"].refuses("has another firewall (firewalld)")
        outcomes["accepted"].passes()
        assert int(outcomes["accepted"].left) > 10
        with host.sudo():
            assert "table inet firewalld" in host.check_output("nft list tables")
    finally:
        with host.sudo():
            host.check_output("apt-get purge --yes firewalld")
            host.run("nft delete table inet firewalld")


@pytest.mark.long
def test_the_rules_are_there_after_a_reboot(host, address, play):
    before = table(host)
    boot = host.check_output("cat /proc/sys/kernel/random/boot_id")
    with host.sudo():
        host.run("systemd-run --on-active=1 systemctl reboot")
    until(lambda: not is_open(address, 22))
    until(lambda: is_open(address, 22), 120)
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert host.check_output("cat /proc/sys/kernel/random/boot_id") != boot
    assert table(host) == before
