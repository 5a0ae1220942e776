"""What a machine reaches that is no node of the cluster: without the firewall, with it, without it.

The table is .cache/test/firewall.md.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

import pytest
import yaml
from testinfra.host import Host

from tests import ports
from tests.live_cluster import REPOSITORY, changed, words
from tests.patience import until
from tests.proven_cluster import (
    NODES,
    a_second_run_changes_nothing,
    jobs_run_and_are_accounted,
    the_quick_suite_passes,
)
from tests.web_listener import Listener

TABLE = REPOSITORY / ".cache/test/firewall.md"
RUN_SECONDS = 1800
SSH = 22
# slurmctld, slurmd, slurmdbd and what monitors them listen for other hosts.
EXPECTED = {"ctl1": {SSH, 6817, 6819, 9090, 9093}, "gpu1": {SSH, 6818, 9100}, "login1": {SSH, 9100}}
# podman's own limits may be above this machine's.
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
# Prints the ports that answer, of `{address: [port, …]}`.
KNOCK = """import asyncio, json, sys

async def knock(address, port):
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), 5)
    except (OSError, asyncio.TimeoutError):
        return None
    writer.close()
    return address, port

async def all_of(wanted):
    tried = [knock(address, port) for address, of in wanted.items() for port in of]
    return [found for found in await asyncio.gather(*tried) if found]

print(json.dumps(asyncio.run(all_of(json.load(sys.stdin)))))
"""


def podman(*arguments: str, words: str | None = None) -> str:
    command = ["podman", *arguments]
    done = subprocess.run(command, input=words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def gateway(operator) -> str:
    """The address that operators come from: this machine's in the network of the nodes."""
    (network,) = json.loads(podman("network", "inspect", f"plumbline-{operator.cluster}"))
    return str(network["subnets"][0]["gateway"])


@pytest.fixture(scope="module")
def addresses(node) -> dict[str, str]:
    return {name: node(name).check_output("hostname -I").split()[0] for name in NODES}


@pytest.fixture(scope="module")
def listening(node) -> dict[str, set[int]]:
    """By node, the TCP ports at which something listens for other hosts."""

    def of(host: Host) -> set[int]:
        with host.sudo():
            sockets = list(ports.sockets(host.check_output(ports.SS)))
        return {
            int(socket.port)
            for socket in sockets
            if socket.protocol == "tcp" and not socket.is_local
        }

    return {name: of(node(name)) for name in NODES}


@pytest.fixture(scope="module")
def stranger(operator, addresses, listening):
    """A function that asks, from a machine of its own in the nodes' network, what is open."""
    image = podman("inspect", "--format={{.Image}}", f"plumbline-{operator.cluster}-gpu1")
    names = {address: name for name, address in addresses.items()}

    def ask() -> dict[str, set[int]]:
        wanted = {addresses[name]: sorted(of) for name, of in listening.items()}
        network = f"--network=plumbline-{operator.cluster}"
        printed = podman(
            *("run", "--rm", "--interactive", *LIMITS, network),
            *("--entrypoint=python3", image, "-c", KNOCK),
            words=json.dumps(wanted),
        )
        found: dict[str, set[int]] = {name: set() for name in NODES}
        for address, port in json.loads(printed):
            found[names[address]].add(port)
        return found

    return ask


@pytest.fixture(scope="module")
def firewall(tmp_path_factory, gateway) -> str:
    """Values of a site whose operators have this machine; users come from anywhere."""
    path = tmp_path_factory.mktemp("site") / "hosts.yml"
    values = {
        "firewall_enabled": True,
        "firewall_ssh_from": [gateway],
        "firewall_people_from": [gateway],
    }
    children = {"slurm_login": {"vars": {"firewall_ssh_from": ["anywhere"]}}}
    document = {"all": {"vars": values, "children": children}}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(path)


def rules(host: Host) -> str:
    with host.sudo():
        # Without the numbers of the packets so far.
        return host.check_output("nft --stateless list table inet plumbline")


def write_row(what: str, found: Mapping[str, set[int]]) -> None:
    cells = [" ".join(map(str, sorted(found[name]))) or "nothing" for name in NODES]
    if not TABLE.exists():
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        TABLE.write_text(f"| | {' | '.join(NODES)} |\n|{'---|' * (len(NODES) + 1)}\n")
    with TABLE.open("a", encoding="utf-8") as file:
        file.write(f"| {what} | {' | '.join(cells)} |\n")


def test_without_a_firewall_a_stranger_reaches_all_that_listens(stranger, listening):
    TABLE.unlink(missing_ok=True)
    for name, expected in EXPECTED.items():
        assert expected <= listening[name]
    found = stranger()
    write_row("without", found)
    assert found == listening


def test_with_it_a_stranger_reaches_only_the_login_node_by_ssh(operator, stranger, firewall):
    run = operator.playbook("slurm-cluster.yml", "-i", firewall, timeout=RUN_SECONDS)
    assert run.returncode == 0, run.stdout[-3000:]
    found = stranger()
    write_row("with", found)
    assert found == {name: set() for name in NODES} | {"login1": {SSH}}


def test_jobs_and_the_validation_pass_it(operator, node):
    jobs_run_and_are_accounted(node("login1"))
    the_quick_suite_passes(operator)


def test_prometheus_reaches_every_target(node):
    prometheus = Listener(node("ctl1"), 9090, "ctl1")
    until(lambda: prometheus.query("up == 0") == [], 120)
    assert {sample["metric"]["node"] for sample in prometheus.query("up")} >= {*NODES}


def test_the_verification_finds_it_on_every_host(operator, firewall):
    run = operator("scripts/verify", *operator.inventories, "-i", firewall, "--json")
    assert run.returncode in {0, 1}, run.stderr
    (row,) = [row for row in json.loads(run.stdout) if row["item"] == "firewall"]
    assert (row["verdict"], sorted(row["hosts"])) == ("holds", sorted(NODES)), row


def test_a_second_run_changes_nothing(operator, firewall):
    a_second_run_changes_nothing(operator, firewall)


def test_rules_that_cut_the_run_off_are_undone(operator, node, stranger, firewall):
    before = rules(node("gpu1"))
    extra = {"firewall_ssh_from": ["192.0.2.1"], "firewall_undo_after": 10}
    only = ("--tags=firewall", "--limit=gpu1", "-e", json.dumps(extra))
    run = operator.playbook("nodes.yml", "-i", firewall, *only)
    assert run.returncode != 0
    assert "did not answer a new connection of this run, so they were undone" in words(run)
    assert rules(node("gpu1")) == before
    assert stranger()["gpu1"] == set()


def test_a_site_that_wants_none_has_none(operator, stranger, listening, firewall):
    off = ("--tags=firewall", "-e", "firewall_enabled=false")
    run = operator.playbook("nodes.yml", "-i", firewall, *off)
    assert run.returncode == 0, run.stdout[-3000:]
    assert {changed(run.stdout)[name] for name in NODES} == {"1"}
    assert stranger() == listening
