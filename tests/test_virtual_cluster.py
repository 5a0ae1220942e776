"""The parts of scripts/virtual-cluster that need no container."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY, load_script
from tests.processes import passes, run

virtual_cluster = load_script("virtual-cluster")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of no nodes, with a key of its own."""
    monkeypatch.setattr(virtual_cluster, "STATE", tmp_path / "state")
    empty = virtual_cluster.Cluster("unit")
    virtual_cluster.make_keys(empty, [])
    yield empty
    empty.sockets.rmdir()


def test_it_runs_before_setup(tmp_path: Path) -> None:
    """As `scripts/demo` calls it in a fresh clone: no .venv, any Python of the machine."""
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(REPOSITORY / "scripts/virtual-cluster", tmp_path / "scripts")
    for folder in ("cluster", "tests", "molecule"):
        (tmp_path / folder).symlink_to(REPOSITORY / folder)
    python = Path(sys.base_prefix, "bin/python3")
    assert "print and install the distribution's packages" in passes(python, "-I", script, "--help")


def test_the_nodes_of_a_cluster() -> None:
    nodes = virtual_cluster.planned_nodes(3, 2)
    assert [node.name for node in nodes] == ["ctl1", "login1", "gpu1", "gpu2", "gpu3"]
    assert {node.gpus for node in nodes if node.name.startswith("gpu")} == {2}
    two = virtual_cluster.planned_nodes(1, 0, 2)
    assert [n.name for n in two if "slurm_controller" in n.groups] == ["ctl1", "ctl2"]
    groups = {group for node in nodes for group in node.groups}
    assert {"slurm_controller", "slurm_database", "slurm_login", "gpu_virtual"} <= groups


def test_the_inventory_it_writes_is_one(tmp_path: Path, cluster: Any) -> None:
    nodes = virtual_cluster.planned_nodes(2, 4)
    addresses = {node.name: f"10.0.0.{i}" for i, node in enumerate(nodes, 1)}
    virtual_cluster.write_inventory(cluster, tmp_path, nodes, addresses)
    shown = passes("ansible-inventory", "-i", tmp_path / "nodes.yml", "--list")
    inventory: dict[str, Any] = json.loads(shown)
    assert inventory["gpu_virtual"]["hosts"] == ["gpu1", "gpu2"]
    assert inventory["_meta"]["hostvars"]["gpu2"]["ansible_host"] == "10.0.0.4"
    gpu1 = inventory["_meta"]["hostvars"]["gpu1"]
    assert gpu1["node_gpus"] == {"model": "virtual", "count": 4}
    assert gpu1["virtual_cluster_public_key"].startswith("ssh-ed25519 AAAA")


def test_the_inventory_declares_a_stand_in_for_nvml_and_what_the_nodes_share(
    tmp_path: Path, cluster: Any
) -> None:
    nodes = [virtual_cluster.VirtualNode("gpu1", ("gpu_virtual",), 2)]

    def declared(**wishes: Any) -> dict[str, Any]:
        path = virtual_cluster.write_inventory(
            cluster, tmp_path, nodes, {"gpu1": "10.0.0.1"}, **wishes
        )
        everything: dict[str, Any] = json.loads(path.read_text().partition("---")[2])["all"]
        return everything

    gpus = declared(with_nvml=True)["children"]["gpu_virtual"]["vars"]["node_gpus"]
    assert gpus == {"model": "virtual", "count": 2, "nvml": True}
    assert "virtual_cluster_slurm_users" not in declared()["vars"]  # the operator, who has sudo
    [operator] = declared(operator_submits=True)["vars"]["virtual_cluster_slurm_users"]
    assert operator["name"] == "ops"
    mounts = declared(shared="ext4")["vars"]["shared_storage_mounts"]
    assert mounts == [{"path": "/shared", "kind": "external", "type": "ext4"}]
    assert "shared_storage_mounts" not in declared(shared="")["vars"]


def test_every_node_has_a_description_and_its_own_lines_come_last(tmp_path: Path) -> None:
    nodes = virtual_cluster.planned_nodes(2, 2)
    healthy = virtual_cluster.descriptions(nodes, "")
    assert list(healthy) == ["gpu1", "gpu2"]
    assert "gpu.*.name = Virtual GPU (stand-in for NVML)" in healthy["gpu1"]
    uuids = [line for text in healthy.values() for line in text.splitlines() if ".uuid = " in line]
    assert len({line.partition("=")[2] for line in uuids}) == 4
    fault = "gpu.1.mig = 1"
    (tmp_path / "gpu2.conf").write_text(f"# a comment\n\n{fault}\n")
    by_node = virtual_cluster.descriptions(nodes, str(tmp_path))
    assert by_node["gpu1"] == healthy["gpu1"]
    assert by_node["gpu2"].startswith(healthy["gpu2"])
    assert by_node["gpu2"].splitlines()[-1] == fault
    everywhere = virtual_cluster.descriptions(nodes, str(tmp_path / "gpu2.conf"))
    assert {text.splitlines()[-1] for text in everywhere.values()} == {fault}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("gpu7.conf", b"count = 1", "gpu7.conf names no node with GPUs; there is gpu1, gpu2"),
        ("gpu1.txt", b"count = 1", "the folder has no NODE.conf"),
        ("gpu1.conf", b"# x\ncount: 1", "gpu1.conf, line 2 is no `key = value`: count: 1"),
        ("gpu1.conf", b"\xff\xfe", "gpu1.conf cannot be read"),
    ],
)
def test_a_description_that_cannot_be_is_told(
    tmp_path: Path, name: str, text: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(virtual_cluster.Failure) as caught:
        virtual_cluster.descriptions(virtual_cluster.planned_nodes(2, 2), str(tmp_path))
    assert sentence in str(caught.value)
    assert caught.value.status == 2


def test_every_connection_to_a_node_is_configured_by_one_file(tmp_path: Path, cluster: Any) -> None:
    (cluster.state / "host_gpu1.pub").write_text("ssh-ed25519 AAAA\n")
    virtual_cluster.write_ssh_files(cluster, {"gpu1": "10.0.0.7"})
    for name in ("gpu1", "10.0.0.7"):
        shown = passes("ssh", "-F", cluster.ssh_config, "-G", name)
        settings = dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)
        assert settings["hostname"] == "10.0.0.7"
        assert settings["user"] == "ops"
        assert settings["userknownhostsfile"] == str(cluster.state / "known_hosts")
        assert settings["controlpath"].startswith(str(cluster.sockets))
    nodes = [virtual_cluster.VirtualNode("gpu1", ())]
    path = virtual_cluster.write_inventory(cluster, tmp_path, nodes, {"gpu1": "10.0.0.7"})
    assert f'"-F {cluster.ssh_config}"' in path.read_text()


def test_a_user_of_the_cluster_logs_in_by_the_same_file(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(virtual_cluster, "containers", lambda _: {"login1": {}})
    monkeypatch.setattr(virtual_cluster.os, "execvp", lambda _, argv: started.append(argv))
    for node in ("login1", "ada@login1"):
        virtual_cluster.ssh(argparse.Namespace(name="unit", node=node, command=["id"]))
    config = ["ssh", "-F", str(cluster.ssh_config)]
    assert started == [[*config, "login1", "id"], [*config, "ada@login1", "id"]]
    with pytest.raises(virtual_cluster.Failure, match="has no node gpu9"):
        virtual_cluster.ssh(argparse.Namespace(name="unit", node="ada@gpu9", command=[]))


def test_down_finds_the_inventory_that_up_wrote_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_every_recipe_names_a_suite_and_the_keys_that_sign_it() -> None:
    for system in ("debian12", "debian13", "ubuntu2204", "ubuntu2404"):
        recipe = virtual_cluster.recipe(system)
        assert {"suite", "components", "keyring", "packages"} <= set(recipe)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["up", "--os", "centos7"], "--os centos7 is not known; choose one of debian12, debian13"),
        (["up", "--compute", "none"], "'none' is not a number of 1 or more"),
        (["up", "--nvml", "/nowhere"], "--nvml /nowhere: there is no such file or folder"),
        (["dance"], "invalid choice: 'dance'"),
    ],
)
def test_a_wrong_argument_is_told_and_nothing_is_started(
    arguments: list[str], sentence: str
) -> None:
    done = run(REPOSITORY / "scripts/virtual-cluster", *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_what_a_node_used_is_its_whole_cgroups_on_either_kind_of_host(tmp_path: Path) -> None:
    both = "3:cpuacct,cpu:/pod/libpod-abc\n0::/pod/libpod-abc/init.scope\n1:memory:/elsewhere\n"
    (tmp_path / "cpuacct/pod/libpod-abc").mkdir(parents=True)
    (tmp_path / "cpuacct/pod/libpod-abc/cpuacct.usage").write_text("2500000000\n")
    assert virtual_cluster.used_by("abc", both, tmp_path) == 2.5
    (tmp_path / "pod/libpod-abc").mkdir(parents=True)
    (tmp_path / "pod/libpod-abc/cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    assert virtual_cluster.used_by("abc", "0::/pod/libpod-abc/init.scope\n", tmp_path) == 1.5


def test_what_nodes_used_is_known_when_they_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_cluster, "USED", tmp_path / "used")
    monkeypatch.setattr(virtual_cluster, "cpu_seconds", lambda container: container["used"])
    monkeypatch.setattr(
        virtual_cluster, "restarts", lambda containers: sum(c["restarts"] for c in containers)
    )
    cluster = virtual_cluster.Cluster("unit")
    assert virtual_cluster.noted_used(cluster) == (0, 0)
    two = [{"used": 1.5, "restarts": 0}, {"used": 2.0, "restarts": 2}]
    virtual_cluster.note_used(cluster, two)
    virtual_cluster.note_used(cluster, [{"used": 3.0, "restarts": 1}])
    assert virtual_cluster.noted_used(cluster) == (6.5, 3)


def test_a_node_that_is_off_uses_nothing() -> None:
    assert virtual_cluster.cpu_seconds({"Id": "abc", "Pid": 2**31}) == 0
