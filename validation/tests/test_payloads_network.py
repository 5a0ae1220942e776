"""Names and packets of a real network stack: this machine's loopback."""

import socket

from validation.payloads import network

FIB = """Main:
  +-- 0.0.0.0/1 2 0 2
     |-- 10.1.2.0
        /24 link UNICAST
     |-- 10.1.2.12
        /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 10.1.2.255
        /32 link BROADCAST
Local:
     |-- 10.1.2.12
        /32 host LOCAL
"""
IF_INET6 = """fe80000000000000f43e11fffebcb692 02 40 20 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
"""


def test_own_addresses_are_those_of_the_kernel_without_its_loopbacks(tmp_path):
    (tmp_path / "fib_trie").write_text(FIB)
    assert network.own_addresses(tmp_path) == ["10.1.2.12"]
    (tmp_path / "if_inet6").write_text(IF_INET6)
    assert network.own_addresses(tmp_path) == ["10.1.2.12", "fe80::f43e:11ff:febc:b692"]


def test_small_and_large_packets_are_answered_by_the_kernel():
    document = network.measure(["localhost"])
    assert document is not None
    (way,) = document["ways"]
    assert way["name"] == "localhost"
    assert "127.0.0.1" in way["addresses"].split() or "::1" in way["addresses"].split()
    assert network._arrives("127.0.0.1", network.SMALL)[0]
    arrived, mtu = network._arrives("127.0.0.1", None)
    assert arrived
    assert mtu >= 1500


def test_what_does_not_answer_did_not_arrive(monkeypatch):
    monkeypatch.setattr(network, "WAIT_S", 0.01)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:  # it reads nothing
        mute.bind(("127.0.0.1", 0))
        monkeypatch.setattr(network, "PORT", mute.getsockname()[1])
        assert network._arrives("127.0.0.1", network.SMALL)[0] is False


def test_a_name_without_an_address_says_why():
    document = network.measure(["no-such-node.invalid"])
    assert document is not None
    (way,) = document["ways"]
    assert way["error"]
    assert not way["small"]


def test_without_others_nobody_is_asked():
    assert network.measure([]) is None
