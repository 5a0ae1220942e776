"""The parts of scripts/virtual-cluster that need no container."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import REPOSITORY, load_script


@pytest.fixture(scope="module")
def virtual_cluster() -> ModuleType:
    return load_script("virtual-cluster")


def test_the_nodes_of_a_cluster(virtual_cluster: ModuleType) -> None:
    nodes = virtual_cluster.planned_nodes(3, 2)
    assert [node.name for node in nodes] == ["ctl1", "login1", "gpu1", "gpu2", "gpu3"]
    assert {node.gpus for node in nodes if node.name.startswith("gpu")} == {2}
    groups = {group for node in nodes for group in node.groups}
    assert {"slurm_controller", "slurm_database", "slurm_login", "gpu_virtual"} <= groups


def test_the_inventory_it_writes_is_one(
    virtual_cluster: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_cluster, "STATE", tmp_path / "state")
    cluster = virtual_cluster.Cluster("unit")
    cluster.state.mkdir(parents=True)
    nodes = virtual_cluster.planned_nodes(2, 4)
    addresses = {node.name: f"10.0.0.{i}" for i, node in enumerate(nodes, 1)}
    virtual_cluster.write_inventory(cluster, tmp_path, nodes, addresses)
    try:
        shown = subprocess.run(
            ["ansible-inventory", "-i", str(tmp_path / "nodes.yml"), "--list"],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        cluster.sockets.rmdir()
    found: dict[str, Any] = json.loads(shown.stdout)
    assert found["gpu_virtual"]["hosts"] == ["gpu1", "gpu2"]
    assert found["_meta"]["hostvars"]["gpu2"]["ansible_host"] == "10.0.0.4"
    assert found["_meta"]["hostvars"]["gpu1"]["node_gpus"] == {"model": "virtual", "count": 4}


def test_every_connection_to_a_node_is_configured_by_one_file(
    virtual_cluster: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_cluster, "STATE", tmp_path / "state")
    cluster = virtual_cluster.Cluster("unit")
    cluster.state.mkdir(parents=True)
    (cluster.state / "host_gpu1.pub").write_text("ssh-ed25519 AAAA\n")
    virtual_cluster.write_ssh_files(cluster, {"gpu1": "10.0.0.7"})
    try:
        for name in ("gpu1", "10.0.0.7"):
            done = subprocess.run(
                ["ssh", "-F", cluster.ssh_config, "-G", name],
                capture_output=True,
                text=True,
                check=True,
            )
            found = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
            assert found["hostname"] == "10.0.0.7"
            assert found["user"] == "ops"
            assert found["userknownhostsfile"] == str(cluster.state / "known_hosts")
            assert found["controlpath"].startswith(str(cluster.sockets))
        nodes = [virtual_cluster.Node("gpu1", ())]
        path = virtual_cluster.write_inventory(cluster, tmp_path, nodes, {"gpu1": "10.0.0.7"})
        assert f'"-F {cluster.ssh_config}"' in path.read_text()
    finally:
        cluster.sockets.rmdir()


def test_down_finds_the_inventory_that_up_wrote_and_no_other(
    virtual_cluster: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_cluster, "STATE", tmp_path / "state")
    monkeypatch.setattr(virtual_cluster, "DEMO_INVENTORY", tmp_path / "demo")
    monkeypatch.setattr(virtual_cluster, "containers", lambda _: {})
    monkeypatch.setattr(virtual_cluster, "podman", lambda *_, **__: None)
    cluster = virtual_cluster.Cluster("unit")
    cluster.state.mkdir(parents=True)
    for folder in ("demo", "own"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "nodes.yml").touch()
    cluster.inventory_note.write_text(f"{tmp_path / 'own'}\n")
    arguments = virtual_cluster.parser().parse_args(["down", "--name=unit"])
    virtual_cluster.down(arguments)
    assert not (tmp_path / "own/nodes.yml").exists()
    assert not cluster.state.exists()
    virtual_cluster.down(arguments)  # nothing is left to say where its inventory was
    assert (tmp_path / "demo/nodes.yml").exists()


def test_every_recipe_names_a_suite_and_the_keys_that_sign_it(virtual_cluster: ModuleType) -> None:
    for system in ("debian12", "debian13", "ubuntu2204", "ubuntu2404"):
        recipe = virtual_cluster.recipe(system)
        assert {"suite", "components", "keyring", "packages"} <= set(recipe)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["up", "--os", "centos7"], "--os centos7 is not known; choose one of debian12, debian13"),
        (["up", "--compute", "none"], "'none' is not a number of 1 or more"),
        (["dance"], "invalid choice: 'dance'"),
    ],
)
def test_a_wrong_argument_is_told_and_nothing_is_started(
    arguments: list[str], sentence: str
) -> None:
    done = subprocess.run(
        [str(REPOSITORY / "scripts/virtual-cluster"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert sentence in done.stderr
