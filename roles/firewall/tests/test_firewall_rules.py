"""The rules of hosts as text, what is refused, and that nft takes them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from roles.firewall.filter_plugins.firewall import (
    firewall_others,
    firewall_problems,
    firewall_rules,
)

PEERS = {
    "cluster": ["10.0.0.1", "10.0.0.11", "10.0.0.12"],
    "compute": ["10.0.0.11", "10.0.0.12", "2001:db8::12"],
    "login": ["10.0.0.2"],
    "monitoring": [],
}
SSH: dict[str, Any] = {"operators": ["anywhere"], "ssh_ports": [22]}


def accepted(text: str) -> list[str]:
    """The rules that let in somebody, less those that every host has."""
    every = re.findall(r"^\t\t(.*accept)$", firewall_rules([], {}), re.MULTILINE)
    return [
        rule for rule in re.findall(r"^\t\t(.*accept)$", text, re.MULTILINE) if rule not in every
    ]


def members(text: str, name: str) -> str:
    return str(re.findall(rf"set {name} {{\n.*\n\t\telements = {{ (.*) }}", text)[0])


def port(number: str, *words: str, protocol: str = "tcp") -> Mapping[str, Any]:
    return {"port": number, "protocol": protocol, "from": list(words)}


def test_what_nobody_lets_in_is_dropped():
    text = firewall_rules([], {}, **SSH)
    assert accepted(text) == ["tcp dport { 22 } accept"]
    assert "type filter hook input priority filter; policy drop;" in text


def test_it_replaces_its_own_table_and_no_other():
    text = firewall_rules([port("6818", "compute")], PEERS, **SSH)
    assert "flush" not in text
    assert set(re.findall(r"\btable (.*?)(?: {)?$", text, re.MULTILINE)) == {"inet plumbline"}
    head = text.index("table inet plumbline\ndelete table inet plumbline\ntable inet plumbline {")
    assert head == 0


def test_there_is_a_rule_for_each_word_and_the_addresses_are_in_sets():
    ports = [port("6818", "compute", "login"), port("9100", "compute"), port("22", "login")]
    text = firewall_rules(ports, PEERS)
    assert accepted(text) == [
        "ip saddr @compute_v4 tcp dport { 6818, 9100 } accept",
        "ip6 saddr @compute_v6 tcp dport { 6818, 9100 } accept",
        "ip saddr @login_v4 tcp dport { 22, 6818 } accept",
    ]
    assert members(text, "compute_v4") == "10.0.0.11, 10.0.0.12"
    assert members(text, "compute_v6") == "2001:db8::12"


def test_a_change_of_nodes_changes_sets_alone():
    ports = [port("6818", "compute"), port("any", "compute", protocol="udp")]
    more = PEERS | {"compute": [*PEERS["compute"], "10.0.0.13"]}
    texts = [firewall_rules(ports, peers).splitlines() for peers in (PEERS, more)]
    differing = [line for line, other in zip(*texts, strict=True) if line != other]
    assert len(differing) == 1
    assert "elements" in differing[0]


def test_nobody_comes_from_a_group_without_hosts():
    assert accepted(firewall_rules([port("9100", "monitoring")], PEERS)) == []


@pytest.mark.parametrize(
    ("written", "ports"),
    [
        (["any"], "1024-65535"),
        (["22", "any", "9100"], "22, 1024-65535"),
        (["6817-6820", "6819-6825", "6826"], "6817-6826"),
        (["443", "22", "443"], "22, 443"),
    ],
)
def test_ports_that_overlap_are_one_range(written, ports):
    (rule,) = accepted(firewall_rules([port(number, "login") for number in written], PEERS))
    assert f"tcp dport {{ {ports} }}" in rule


def test_networks_of_nodes_count_as_compute_nodes_and_not_as_controllers():
    peers = PEERS | {"controllers": ["10.0.0.1"]}
    ports = [port("6818", "compute", "controllers", "cluster")]
    text = firewall_rules(ports, peers, nodes=["10.8.0.0/16", "2001:db8::/64"])
    for name in ("compute_v4", "cluster_v4"):
        assert "10.8.0.0/16" in members(text, name)
    assert "2001:db8::/64" in members(text, "compute_v6")
    assert members(text, "controllers_v4") == "10.0.0.1"


def test_people_and_operators_come_from_where_the_site_says():
    ports = [port("3000", "people"), port("22", "operators", "login")]
    text = firewall_rules(
        ports, PEERS, people=["198.51.100.0/24"], operators=["192.0.2.0/24"], ssh_ports=[22, 2222]
    )
    assert "ip saddr @people_v4 tcp dport { 3000 } accept" in accepted(text)
    assert "ip saddr @operators_v4 tcp dport { 22, 2222 } accept" in accepted(text)
    assert members(text, "people_v4") == "198.51.100.0/24"


def test_a_site_lets_in_what_it_wants():
    allow = [
        {"port": "8000-8010", "from": ["192.0.2.9", "compute"]},
        {"protocol": "any", "from": ["10.20.0.0/16"]},
        {"port": "4789", "protocol": "udp", "from": ["anywhere"]},
    ]
    text = firewall_rules([], PEERS, allow)
    every, first, *others = accepted(text)
    assert re.fullmatch(r"ip saddr @site_\d+_v4 accept", every)
    assert re.fullmatch(r"ip saddr @site_\d+_v4 tcp dport { 8000-8010 } accept", first)
    assert others == [
        "ip saddr @compute_v4 tcp dport { 8000-8010 } accept",
        "ip6 saddr @compute_v6 tcp dport { 8000-8010 } accept",
        "udp dport { 4789 } accept",
    ]
    elements = {re.findall(r"@(site_\d+_v4)", rule)[0] for rule in (every, first)}
    assert {members(text, name) for name in elements} == {"10.20.0.0/16", "192.0.2.9"}


def test_a_word_that_nobody_knows_is_no_rule_for_nobody():
    with pytest.raises(AnsibleFilterError, match="a port is for 'painters'"):
        firewall_rules([port("7000", "painters")], PEERS)
    with pytest.raises(AnsibleFilterError, match="'ssh' is no port"):
        firewall_rules([port("ssh", "login")], PEERS)


def test_nft_takes_them(tmp_path):
    """In a network namespace of its own, as the role tries them."""
    peers = PEERS | {"cluster": [f"10.{i // 250}.1.{i % 250 + 1}" for i in range(1000)]}
    ports = [
        port("any", "cluster"),
        port("6817-6819", "cluster"),
        port("any", "compute", protocol="udp"),
    ]
    allow = [{"protocol": "any", "from": ["10.0.0.5/24"]}, {"port": "1-1024", "from": ["anywhere"]}]
    file = tmp_path / "rules.nft"
    file.write_text(
        firewall_rules(
            ports,
            peers,
            allow,
            nodes=["10.0.0.0/16"],
            interfaces=["ib*", "eth0"],
            managed="A\nB",
            **SSH,
        )
    )
    script = 'nft --file "$1" && nft --file "$1" && nft list table inet plumbline'
    words = ["unshare", "--map-root-user", "--net", "sh", "-c", script, "sh", file]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert 'iifname "ib*" accept' in done.stdout


# --- what is refused -----------------------------------------------------------------------------


def problems(*allow: Mapping[str, Any], interfaces=("ib*",), **sources: list[str]) -> list[str]:
    return firewall_problems(allow, PEERS, sources, interfaces)


def test_what_can_be_made_a_rule_is_not_refused():
    allow = [
        {"port": "8000", "from": ["anywhere", "compute", "192.0.2.1", "2001:db8::/32"]},
        {"port": "8000-8010", "protocol": "udp", "from": ["people"]},
        {"protocol": "any", "from": ["operators"]},
        {"port": "any", "from": ["login"]},
    ]
    assert problems(*allow, firewall_ssh_from=["anywhere", "10.0.0.0/8"]) == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"port": "80000", "from": ["login"]},
            "firewall_allow[0] has the port 80000; set a number",
        ),
        ({"port": "10-1", "from": ["login"]}, "has the port 10-1"),
        ({"port": "ssh", "from": ["login"]}, "has the port ssh"),
        ({"from": ["login"]}, "has no port; set one, as port: 8080"),
        ({"port": "80", "protocol": "any", "from": ["login"]}, "has a port and protocol any"),
        ({"port": "80", "from": []}, "says not from where"),
        ({"port": "80", "from": ["gpu1"]}, "lets in 'gpu1', which is no address and no network"),
        ({"port": "80", "from": ["10.0.0.0/33"]}, "lets in '10.0.0.0/33'"),
    ],
)
def test_an_entry_that_means_nothing_is_refused(entry, words):
    (problem,) = problems(entry)
    assert words in problem


def test_an_address_that_is_none_is_refused_by_the_name_of_its_variable():
    (problem,) = problems(firewall_ssh_from=["10.0.0.0/8", "vpn.example.org"])
    assert problem.startswith("firewall_ssh_from has 'vpn.example.org', which is no address")
    (problem,) = problems(interfaces=['ib0" accept'])
    assert problem.startswith("firewall_trusted_interfaces has")


# --- other firewalls -----------------------------------------------------------------------------


def chains(*some: Mapping[str, Any]) -> str:
    return json.dumps({"nftables": [{"metainfo": {}}, *({"chain": chain} for chain in some)]})


OURS = {"family": "inet", "table": "plumbline", "name": "input", "hook": "input", "policy": "drop"}


@pytest.mark.parametrize(
    ("answer", "others"),
    [
        ("inactive\n", []),
        ("inactive\n" + chains(), []),
        ("inactive\n" + chains(OURS), []),
        ("inactive\n" + chains(OURS | {"table": "docker", "hook": "forward"}), []),
        ("inactive\n" + chains(OURS | {"table": "site", "policy": "accept"}), []),
        ("inactive\n" + chains(OURS | {"family": "ip"}), ["chain input of table ip plumbline"]),
        ("active\n", ["firewalld"]),
        ("active\n" + chains(OURS | {"table": "s"}), ["firewalld", "chain input of table inet s"]),
    ],
)
def test_a_firewall_that_drops_is_named(answer, others):
    assert firewall_others(answer) == others
