"""Preflight of a small cluster with an unfit node, and one that is off, which do not exist."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).resolve().parents[1]
HARDWARE = {
    "node_cpus": "{sockets: 2, cores_per_socket: 56, threads_per_core: 2}",
    "node_memory_mb": "2000000",
    "node_gpus": "{model: h100_sxm, count: 8}",
    "fabric": "ib_ndr400",
}
NONE = f"'{64 * '0'}'"
# Declared with more memory than the node that does not exist says it has.
REFUSED = "node_memory_mb: 4000000"
# A port of this host at which nothing listens.
AWAY = "ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1, node_address: 10.0.0.99"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """Eight hosts, of which gpu3 has less than it declares, and gpu5 is off."""
    nodes = {f"gpu{number}": f"ansible_host: 10.0.1.{number}" for number in range(1, 7)}
    nodes |= {"gpu3": f"{nodes['gpu3']}, {REFUSED}", "gpu5": AWAY}
    lines = [
        "all:",
        "  vars:",
        "    ansible_connection: remembering_node",
        "    ansible_python_interpreter: /usr/bin/python3",
        f"    enroot_sha256: {{4.2.1-amd64-enroot: {NONE}, 4.2.1-amd64-enroot+caps: {NONE}}}",
        "  children:",
        "    slurm_cluster:",
        "      children:",
        "        slurm_controller: {hosts: {ctl1: {ansible_host: 10.0.0.1}}}",
        "        slurm_database: {hosts: {ctl1: }}",
        "        slurm_login: {hosts: {login1: {ansible_host: 10.0.0.2}}}",
        "        slurm_compute:",
        "          vars:",
        *(f"            {name}: {value}" for name, value in HARDWARE.items()),
        "          hosts:",
        *(f"            {name}: {{{variables}}}" for name, variables in nodes.items()),
    ]
    (tmp_path / "inventory").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "inventory" / "hosts.yml").write_text("\n".join(lines) + "\n")
    return tmp_path / "inventory"


def preflight(inventory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests/standins/connection_plugins"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "REMEMBERING_NODES": str(inventory.parent / "state"),
    }
    command = ("ansible-playbook", "-i", str(inventory), "playbooks/preflight.yml", *arguments)
    return processes.run(*command, cwd=ROOT, env=environment, timeout=300)


def recap(run: subprocess.CompletedProcess[str], host: str) -> dict[str, str]:
    [line] = [
        line for line in run.stdout.splitlines() if line.startswith(f"{host} ") and " : " in line
    ]
    return dict(word.split("=") for word in line.partition(" : ")[2].split())


@pytest.mark.long
@pytest.mark.heavy("a complete preflight of eight hosts")
def test_the_run_goes_on_without_them(inventory: Path) -> None:
    run = preflight(inventory)
    assert run.returncode == 4, run.stdout + run.stderr
    said = " ".join((run.stdout + run.stderr).split())
    assert "6 of 8 hosts passed the checks (ctl1, login1, gpu1, gpu2, gpu4, gpu6)" in said
    assert "node_memory_mb declares 4000000 MiB, but the node has 2063000" in said
    assert "Not reached, and therefore not configured: gpu5" in said
    assert "--limit gpu3,gpu5" in said
    assert recap(run, "gpu3")["failed"] == "1"
    assert recap(run, "gpu5")["unreachable"] == "1"
    for host in ("ctl1", "login1", "gpu1", "gpu6"):
        assert recap(run, host)["failed"] == recap(run, host)["unreachable"] == "0"


@pytest.mark.long
def test_too_many_of_them_stop_it_before_any_change(inventory: Path) -> None:
    run = preflight(inventory, "-e", "cluster_unfit_percent=20")
    assert run.returncode != 0
    said = " ".join((run.stdout + run.stderr).split())
    assert "2 of 8 hosts cannot be reached or are refused, which is more than 20 %" in said
    assert "No host passed the checks; nothing was changed." in said
    assert "Leave the host out" not in said
