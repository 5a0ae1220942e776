"""What the roles of each host open, and for whom, as the firewall is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.standins.inventories import REPOSITORY, good, hosts, worked_out, write


def cluster(folder: Path, children: dict[str, Any] | None = None, **variables: Any) -> Any:
    """What a site with firewalls declares."""
    files = {"group_vars/all.yml": {"firewall_enabled": True} | variables}
    return worked_out(write(folder / "i", good() | (children or {}), files))[1]


def of(declared: Any, host: str) -> set[tuple[str, str, str, tuple[str, ...]]]:
    entries = declared.ports[declared.port_profiles[host]]
    return {(e["role"], e["protocol"], e["port"], tuple(e["from"])) for e in entries}


def test_hosts_of_one_kind_share_a_profile(tmp_path):
    more = {f"gpu{i}": f"10.0.1.{i}" for i in range(3, 9)}
    declared = cluster(tmp_path, {"others": hosts(**more), "slurm_compute": compute(more)})
    first = declared.port_profiles["gpu1"]
    assert {declared.port_profiles[name] for name in ("gpu1", "gpu2", *more)} == {first}
    assert set(declared.ports) == {"ctl1", "login1", first}


def compute(more: dict[str, str]) -> dict[str, Any]:
    group = good()["slurm_compute"]
    group["children"]["gpu_h100"]["hosts"] |= {name: {} for name in more}
    return dict(group)


def test_each_host_opens_what_its_roles_do(tmp_path):
    declared = cluster(tmp_path, {"monitoring": {"hosts": {"ctl1": {}}}})
    assert ("slurm", "tcp", "6817", ("slurm",)) in of(declared, "ctl1")
    assert ("prometheus", "tcp", "9090", ("people", "cluster")) in of(declared, "ctl1")
    assert ("slurm", "udp", "any", ("compute", "login")) in of(declared, "gpu1")
    assert ("job_login", "tcp", "22", ("login", "compute")) in of(declared, "gpu1")
    for name in ("ctl1", "login1", "gpu1"):
        assert ("node_base", "tcp", "22", ("operators", "login")) in of(declared, name)
        assert ("node_exporter", "tcp", "9100", ("monitoring",)) in of(declared, name)
    assert not {port for role, _, port, _ in of(declared, "ctl1")} & {"any", "3306", "6818"}
    assert {role for role, *_ in of(declared, "login1")} == {
        *("node_base", "slurm", "node_exporter")
    }


def test_what_a_site_sets_is_open(tmp_path):
    declared = cluster(
        tmp_path,
        slurm_settings={"SlurmctldPort": "7817-7820", "SrunPortRange": "60001-63000"},
        log_collection_host="login1",
        shared_storage_exports=[{"server": "ctl1", "path": "/home", "tier": "home"}],
        shared_storage_networks=["10.9.0.0/24"],
    )
    assert ("slurm", "tcp", "7817-7820", ("slurm",)) in of(declared, "ctl1")
    assert ("slurm", "tcp", "60001-63000", ("controllers", "compute")) in of(declared, "ctl1")
    assert ("log_collection", "tcp", "6514", ("cluster",)) in of(declared, "login1")


def test_addresses_are_those_of_the_groups_both_that_ansible_and_that_others_use(tmp_path):
    children = {
        "slurm_login": {
            "hosts": {"login1": {"node_address": "10.5.0.2", "ansible_host": "192.0.2.2"}}
        }
    }
    declared = cluster(tmp_path, children)
    assert declared.peers["login"] == ["10.5.0.2", "192.0.2.2"]
    assert declared.peers["compute"] == ["10.0.0.11", "10.0.0.12"]
    assert declared.peers["monitoring"] == []
    assert set(declared.peers["cluster"]) >= {"10.0.0.1", "10.5.0.2", "10.0.0.11"}


def test_a_host_that_is_reached_by_a_tunnel_has_one_address(tmp_path):
    tunnel = {"ansible_host": "127.0.0.1", "ansible_port": 2201, "node_address": "10.5.0.2"}
    declared = cluster(tmp_path, {"slurm_login": {"hosts": {"login1": tunnel}}})
    assert declared.peers["login"] == ["10.5.0.2"]


def test_nothing_is_worked_out_where_nobody_has_a_firewall(tmp_path):
    declared = cluster(tmp_path, firewall_enabled=False)
    assert (declared.peers, declared.ports, declared.port_profiles) == ({}, {}, {})


@pytest.mark.parametrize("name", ["example", "example-centre", "example-company"])
def test_inventories_that_we_ship_have_it_on(name):
    folder = REPOSITORY / "inventory" / name
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("group_vars/all*/**/*.yml")]
    texts += [path.read_text(encoding="utf-8") for path in folder.glob("group_vars/all.yml")]
    assert any("\nfirewall_enabled: true\n" in text for text in texts)
