"""The inventory as a contract: what it declares, and what preflight refuses in it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from playbooks.action_plugins import preflight_variables
from playbooks.filter_plugins import declaration, preflight

ROLES = Path(__file__).parent.parent / "roles"

VARIABLES: dict[str, Any] = {
    "ansible_host": "10.0.0.1",
    "node_cpus": {"sockets": 1, "cores_per_socket": 8, "threads_per_core": 2},
    "node_memory_mb": 64000,
    "node_gpus": {"model": "h100_sxm", "count": 8},
    "fabric": "ib_ndr400",
}
GROUPS = {
    "all": ["ctl1", "login1", "gpu1"],
    "ungrouped": [],
    "slurm_cluster": ["ctl1", "login1", "gpu1"],
    "slurm_controller": ["ctl1"],
    "slurm_database": ["ctl1"],
    "slurm_login": ["login1"],
    "slurm_compute": ["gpu1"],
    "gpu_h100": ["gpu1"],
    "monitoring": ["ctl1"],
}


def problems(**changes: list[str]) -> str:
    return "\n".join(preflight.inventory_problems(GROUPS | changes))


# --- what is declared ----------------------------------------------------------------------------


def test_a_node_is_what_its_variables_say() -> None:
    assert declaration.declared_node("gpu1", VARIABLES) == {
        "name": "gpu1",
        "address": "10.0.0.1",
        "cpus": VARIABLES["node_cpus"],
        "memory_mb": 64000,
        "gpus": {"model": "h100_sxm", "count": 8},
        "fabric": "ib_ndr400",
    }


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"node_cpus": None}, "gpu1: node_cpus is not set"),
        ({"node_cpus": 16}, "gpu1: node_cpus is 16; it must have exactly the keys sockets"),
        ({"node_cpus": {"sockets": 1, "cores": 8}}, "it must have exactly the keys"),
        ({"node_memory_mb": "lots"}, "gpu1: node_memory_mb is 'lots'"),
        ({"node_memory_mb": True}, "gpu1: node_memory_mb is True"),
        ({"node_memory_mb": 0}, "whole number of 1 or more"),
        ({"node_gpus": {"model": "h100_sxm", "count": -1}}, "gpu1: node_gpus.count is -1"),
        ({"node_gpus": {"modell": "x", "count": 1}}, "exactly the keys model, count"),
        ({"ansible_host": "gpu1.example.org"}, "is not an IP address; set node_address"),
    ],
)
def test_a_declaration_that_cannot_be_used_is_told_in_one_sentence(
    changes: Mapping[str, Any], sentence: str
) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        declaration.declared_node("gpu1", {**VARIABLES, **changes})
    assert sentence in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_the_document_counts_logical_cpus() -> None:
    nodes = declaration.declared_nodes(GROUPS, {"gpu1": VARIABLES})
    document = declaration.declaration(
        nodes,
        cluster="c",
        controller=["ctl1"],
        login=["login1"],
        partitions=[{"name": "gpu", "nodes": ["gpu1"], "default": True, "max_time": "1-00"}],
        python="/opt/plumbline/bin/python",
    )
    assert document["nodes"][0]["cpus"] == 16
    assert document["partitions"] == [{"name": "gpu", "nodes": ["gpu1"], "default": True}]


# --- groups --------------------------------------------------------------------------------------


def test_a_good_inventory_has_no_problem() -> None:
    assert problems() == ""


def test_a_group_without_a_host_is_named() -> None:
    assert "group slurm_login (where users log in and submit) has no host" in problems(
        slurm_login=[]
    )


def test_a_node_in_two_groups_of_compute_nodes_is_named() -> None:
    assert "gpu1 is in 2 groups of compute nodes (gpu_h100, gpu_a100)" in problems(
        gpu_a100=["gpu1"]
    )


def test_a_misspelt_group_is_told_with_the_one_that_was_meant() -> None:
    found = problems(slurm_computes=["gpu9"], all=["ctl1", "login1", "gpu1", "gpu9"])
    assert "group slurm_computes has hosts that are not in slurm_cluster (gpu9)" in found
    assert "did you mean slurm_compute?" in found


def test_a_name_that_slurm_cannot_use_is_refused() -> None:
    assert "'gpu1.example.org' cannot be a NodeName" in problems(
        slurm_cluster=["ctl1", "gpu1.example.org"]
    )


# --- variables -----------------------------------------------------------------------------------


def judge(**variables: Any) -> list[tuple[str, str]]:
    specs = preflight_variables.read_specs(ROLES)
    return list(preflight_variables.variable_problems(variables, specs, variables.__getitem__))


@pytest.mark.parametrize(
    ("variables", "name", "sentence"),
    [
        ({"slurm_partitons": []}, "slurm_partitons", "did you mean slurm_partitions?"),
        ({"node_gpu": {}}, "node_gpu", "did you mean node_gpus?"),
        ({"slurm_slurmd_timeout": "soon"}, "slurm_slurmd_timeout", "must be of type int"),
        ({"validation_runtime_source": "conda"}, "validation_runtime_source", "must be one of"),
        ({"slurm_partitions": [{"name": "x", "nods": []}]}, "slurm_partitions", "nodes"),
        ({"slurm_database_password": ""}, "slurm_database_password", "is empty"),
        ({"slurm_database_password": "ChangeMe"}, "slurm_database_password", "everyone knows"),
        ({"slurm_database_password": "short"}, "slurm_database_password", "shorter than 16"),
    ],
)
def test_a_variable_that_cannot_work_is_refused(
    variables: dict[str, Any], name: str, sentence: str
) -> None:
    [(found, problem)] = judge(**variables)
    assert found == name
    assert sentence in problem


def test_variables_of_others_are_none_of_our_business() -> None:
    assert judge(my_site_thing=1, ansible_user="ops", slurm_cluster_name="c") == []


def test_a_secret_is_never_shown() -> None:
    [(_, problem)] = judge(slurm_database_password="hunter2hunter")
    assert "hunter2" not in problem


def test_the_file_that_sets_a_variable_is_named(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("all: {}\n")
    (tmp_path / "group_vars/all").mkdir(parents=True)
    (tmp_path / "group_vars/all/slurm.yml").write_text("---\nslurm_partitons: []\n")
    for source in (hosts, tmp_path):
        assert preflight_variables.where_set("slurm_partitons", [str(source)]).endswith(
            "/group_vars/all/slurm.yml)"
        )
    assert preflight_variables.where_set("nowhere_set", [str(tmp_path)]) == ""


# --- the inventories that we ship ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["example"])
def test_a_shipped_inventory_is_refused_nothing(name: str, tmp_path: Path) -> None:
    """Through Ansible itself, as far as no host is touched: groups, variables, declaration."""
    repository = ROLES.parent
    written = tmp_path / "cluster.json"
    for arguments in (
        ["playbooks/preflight.yml", "--skip-tags", "hosts"],
        ["playbooks/declaration.yml", "--extra-vars", f"declaration_file={written}"],
    ):
        done = subprocess.run(
            ["ansible-playbook", "-i", f"inventory/{name}", *arguments],
            cwd=repository,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    assert json.loads(written.read_text())["nodes"]
