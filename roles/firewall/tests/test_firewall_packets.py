"""Who comes to which port, by the rules of each kind of host and with real packets.

The host and those who ask are two network namespaces with a cable between them; each asker has an
address of the inventory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roles.firewall.filter_plugins.firewall import firewall_rules
from tests.standins.inventories import good, hosts, worked_out, write

PORTS = [22, 443, 3000, 6817, 6818, 6819, 8000, 9090, 9093, 9100, 45000]
ASKERS = {
    "controller": "10.0.0.1",
    "login node": "10.0.0.2",
    "compute node": "10.0.0.12",
    "monitoring host": "10.0.0.3",
    "stranger": "10.0.0.99",
}
HOST = "10.0.0.250"  # of whichever kind

LAN = """set -e
mount -t tmpfs none /run
mkdir /run/netns
ip netns add askers
ip link add cable type veth peer name cable netns askers
ip address add {host}/24 dev cable
ip link set cable up
ip link set lo up
for address in {askers}; do ip -n askers address add $address/24 dev cable; done
ip -n askers link set cable up
"""
LISTEN = """
import socket, sys, time
held = [socket.create_server(("0.0.0.0", int(port))) for port in sys.argv[1:]]
print("ready", flush=True)
time.sleep(600)
"""
ASK = """
import json, select, socket, sys, time
host, ports, askers = json.loads(sys.argv[1])
trying = {}
for name, address in askers.items():
    for port in ports:
        it = socket.socket()
        it.bind((address, 0))
        it.setblocking(False)
        it.connect_ex((host, port))
        trying[it] = (name, port)
time.sleep(1.5)
_, done, _ = select.select([], list(trying), [], 0)
found = {name: [] for name in askers}
for it in done:
    if it.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
        found[trying[it][0]].append(trying[it][1])
print(json.dumps({name: sorted(of) for name, of in found.items()}))
"""
# In a namespace of its own: no rule is ever loaded into this machine's.
SCRIPT = """
import subprocess, sys
python, lan, listen, ask, asked, *files = sys.argv[1:]
subprocess.run(["sh", "-c", lan], check=True)
ports = __import__("json").loads(asked)[1]
listener = subprocess.Popen([python, "-c", listen, *map(str, ports)], stdout=subprocess.PIPE)
listener.stdout.readline()
try:
    for file in files:
        subprocess.run(["nft", "--file", file], check=True)
        words = ["ip", "netns", "exec", "askers", python, "-c", ask, asked]
        print(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout, end="")
finally:
    listener.kill()
"""


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[int]]]:
    """By kind of host, what each asker comes to; `none` is a host without a firewall."""
    folder = tmp_path_factory.mktemp("firewall")
    cluster = good() | {"monitoring": hosts(mon1="10.0.0.3")}
    site = {"firewall_enabled": True}
    declared = worked_out(write(folder / "i", cluster, {"group_vars/all.yml": site}))[1]
    kinds: dict[str, str] = {"none": "table inet plumbline\ndelete table inet plumbline\n"}
    for host in ("ctl1", "login1", "gpu1", "mon1"):
        kinds[host] = firewall_rules(
            declared.ports[declared.port_profiles[host]],
            declared.peers,
            people=["10.0.0.99"],
            operators=["10.0.0.99"],
            ssh_ports=[22],
        )
    files = [folder / f"{kind}.nft" for kind in kinds]
    for file, text in zip(files, kinds.values(), strict=True):
        file.write_text(text)
    lan = LAN.format(host=HOST, askers=" ".join(ASKERS.values()))
    asked = json.dumps([HOST, PORTS, ASKERS])
    python = [sys.executable, "-c"]
    words: list[Any] = [*python, SCRIPT, sys.executable, lan, LISTEN, ASK, asked, *files]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--net", "--mount", *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        cwd=Path("/"),
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(kinds, map(json.loads, done.stdout.splitlines()), strict=True))


def test_without_a_firewall_everybody_comes_to_everything(reached):
    assert reached["none"] == dict.fromkeys(ASKERS, PORTS)


# The stranger sits where people and operators come from: SSH and web pages are what is left.
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (
            "ctl1",
            {
                "controller": [6817, 6819],
                "login node": [22, 6817, 6819],
                "compute node": [6817, 6819],
                "monitoring host": [9100],
                "stranger": [22],
            },
        ),
        (
            "login1",
            {
                "controller": [3000, 6817, 6818, 6819, 8000, 9090, 9093, 9100, 45000],
                "login node": [22],
                "compute node": [3000, 6817, 6818, 6819, 8000, 9090, 9093, 9100, 45000],
                "monitoring host": [9100],
                "stranger": [22],
            },
        ),
        (
            "gpu1",
            {
                "controller": [3000, 6817, 6818, 6819, 8000, 9090, 9093, 9100, 45000],
                "login node": [22, *(port for port in PORTS if port > 1024)],
                "compute node": [22, *(port for port in PORTS if port > 1024)],
                "monitoring host": [9100],
                "stranger": [22],
            },
        ),
        (
            "mon1",
            {
                "controller": [9090],
                "login node": [22, 9090],
                "compute node": [9090],
                "monitoring host": [9090, 9093, 9100],
                "stranger": [22, 3000, 9090, 9093],
            },
        ),
    ],
)
def test_each_comes_to_what_is_for_them(reached, host, expected):
    assert reached[host] == expected
