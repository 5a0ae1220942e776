"""The table of what nodes should have and have."""

from __future__ import annotations

from typing import Any

import pytest

from playbooks.filter_plugins.verify import verify_row, verify_skipped
from playbooks.filter_plugins.verify_table import (
    roles_of_groups,
    verified_rows,
    verify_problems,
    verify_table,
)

ROLES = {"slurm_compute": ["driver", "enroot"], "slurm_login": ["enroot"]}
REACHED = {"ansible_facts": {"x": 1}}


def host(
    name: str, version: str = "580", group: str = "slurm_compute", **more: Any
) -> dict[str, Any]:
    rows = [verify_row(version, "driver", "version", "580", "run gpu-software.yml.")]
    return {
        "inventory_hostname": name,
        "group_names": [group, "slurm_cluster"],
        "__verify_connection": REACHED,
        "__driver_verified": rows,
        "__enroot_verified": [verify_skipped("enroot", "images", "nothing is declared")],
    } | more


NO_ROUTE = {"unreachable": True, "msg": "ssh: connect to host 10.0.0.9 port 22: No route"}
AWAY = {
    "inventory_hostname": "gpu9",
    "group_names": ["slurm_compute"],
    "__verify_connection": NO_ROUTE,
}


def test_nodes_that_are_alike_share_a_line() -> None:
    nodes = [host(f"gpu{number}") for number in range(1, 1001)]
    nodes += [host("gpu1001", "570"), host("login1", group="slurm_login"), AWAY]
    lines = verify_table(nodes, ROLES).splitlines()
    assert lines[0].split() == ["NODES", "COMPONENT", "WHAT", "EXPECTED", "FOUND", "VERDICT"]
    assert [line.split() for line in lines[1:3]] == [
        ["gpu[1-1000]", "driver", "version", "580", "580", "PASS"],
        ["gpu1001", "driver", "version", "580", "570", "FAIL"],
    ]
    assert lines[3].split()[:3] == ["gpu[1-1001],login1", "enroot", "images"]
    assert lines[4].split()[:2] == ["gpu9", "node"]
    assert "No route" in lines[4]
    count = "1000 passed, 2 failed, 1002 do not apply."
    assert lines[-1] == f"1003 nodes, 2 not as they should be: gpu[9,1001]; {count}"
    sentence = "gpu1001: driver: version is 570, expected 580; run gpu-software.yml."
    assert any(sentence in line for line in lines)
    assert len(lines) < 15


def test_all_is_well() -> None:
    table = verify_table([host("gpu1")], ROLES)
    assert table.endswith("1 node, all as they should be; 1 passed, 0 failed, 1 do not apply.")
    assert "What to do" not in table
    assert verify_problems([host("gpu1")], ROLES) == []


FAILED = {"failed": True, "msg": "sudo: no"}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"__driver_verified": []}, "gpu1: driver: answer is no answer, expected an answer"),
        ({"__driver_verified": None}, "gpu1: driver: answer is no answer"),
        ({"__verify_failed_roles": {"driver": "no module"}}, "gpu1: driver: answer is no module"),
        ({"__verify_connection": None}, "gpu1: node: answer is it was not reached in this run"),
        ({"__verify_connection": FAILED}, "gpu1: node: answer is sudo: no"),
    ],
)
def test_what_was_not_answered_is_a_failure(more: dict[str, Any], sentence: str) -> None:
    problems = verify_problems([host("gpu1", **more)], ROLES)
    assert len(problems) == 1
    assert problems[0].startswith(sentence)
    assert "1 not as they should be: gpu1" in verify_table([host("gpu1", **more)], ROLES)


def test_nobody_asked_is_no_success() -> None:
    with pytest.raises(ValueError, match="no node was asked"):
        verify_table([], ROLES)


def test_a_long_text_goes_on_in_the_next_line() -> None:
    table = verify_table([host("gpu1", "word " * 30)], ROLES)
    assert max(map(len, table.split("What to do")[0].splitlines())) < 180
    assert table.split("What to do")[0].count("word") == 30


def test_roles_of_a_host_in_several_groups_come_once() -> None:
    assert roles_of_groups(ROLES, ["slurm_login", "slurm_compute"]) == ["driver", "enroot"]
    assert roles_of_groups(ROLES, []) == []
    assert verified_rows(host("gpu1"), ["driver"])[0]["verdict"] == "PASS"
