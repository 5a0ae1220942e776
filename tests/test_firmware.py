"""The firmware of all nodes as a table, and the odd one out."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from playbooks.filter_plugins.firmware import firmware_table
from tests import ansible_processes
from tests.conftest import REPOSITORY

H100 = "NVIDIA H100 80GB HBM3"
BOARD = """\
/sys/class/dmi/id/sys_vendor:Supermicro
/sys/class/dmi/id/product_name:SYS-821GE
/sys/class/dmi/id/bios_version:2.1
/sys/class/dmi/id/bios_date:05/04/2026
"""


def gpu(index: int, **values: Any) -> dict[str, Any]:
    known = {"name": H100, "vbios": "96.00.74.00.01", "inforom": "G520.0200.00.05"}
    return {"index": index, "error": None, "values": known | values}


def card(device: str, **values: Any) -> dict[str, Any]:
    known = {"device": device, "firmware": "28.43.1014", "board": "MT_0000000838"}
    return known | values


def host(name: str, **answers: Any) -> dict[str, Any]:
    return {
        "inventory_hostname": name,
        "__firmware_board": {"stdout": answers.get("board", BOARD)},
        "__firmware_gpus": answers.get("gpus", {"error": None, "gpus": [gpu(0), gpu(1)]}),
        "__firmware_cards": answers.get("cards", {"error": None, "ports": [card("mlx5_0")]}),
    }


def lines(*hosts: dict[str, Any]) -> list[str]:
    return [" ".join(line.split()) for line in firmware_table(hosts).splitlines()]


def test_parts_that_are_alike_share_a_line() -> None:
    assert lines(host("gpu1"), host("gpu2")) == [
        "WHAT MODEL FIRMWARE PARTS NODES",
        "BIOS Supermicro SYS-821GE 2.1 (05/04/2026) 2 gpu[1-2]",
        f"InfoROM {H100} G520.0200.00.05 4 gpu[1-2]",
        f"VBIOS {H100} 96.00.74.00.01 4 gpu[1-2]",
        "network card MT_0000000838 28.43.1014 2 gpu[1-2]",
        "",
        "Parts of one model have the same firmware.",
    ]


def test_the_odd_one_out_is_named_with_its_part() -> None:
    old = {"error": None, "gpus": [gpu(0), gpu(1, vbios="96.00.99.00.01")]}
    said = lines(host("gpu1"), host("gpu2", gpus=old))
    assert f"VBIOS {H100} 96.00.99.00.01 1 gpu2 differs" in said
    assert said[-2:] == [
        "Other firmware than their like have:",
        f"gpu2: VBIOS of GPU 1 ({H100}) is 96.00.99.00.01; 3 of 4 have 96.00.74.00.01.",
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"cards": {"error": None, "ports": [card("mlx5_0", firmware="28.39.2048")]}},
            "gpu4: network card of mlx5_0 (MT_0000000838) is 28.39.2048; 3 of 4 have 28.43.1014.",
        ),
        (
            {"board": BOARD.replace("2.1", "1.9")},
            "gpu4: BIOS (Supermicro SYS-821GE) is 1.9 (05/04/2026); 3 of 4 have 2.1 (05/04/2026).",
        ),
    ],
)
def test_cards_and_servers_are_held_against_their_like(
    changes: dict[str, Any], sentence: str
) -> None:
    same = [host(f"gpu{number}") for number in (1, 2, 3)]
    assert sentence in lines(*same, host("gpu4", **changes))


def test_of_two_that_differ_nobody_knows_the_right_one() -> None:
    said = lines(host("gpu1"), host("gpu2", board=BOARD.replace("2.1", "1.9")))
    assert [line for line in said if line.endswith("differs")] == [
        "BIOS Supermicro SYS-821GE 1.9 (05/04/2026) 1 gpu2 differs",
        "BIOS Supermicro SYS-821GE 2.1 (05/04/2026) 1 gpu1 differs",
    ]
    assert said[-1] == (
        "BIOS of Supermicro SYS-821GE: 1.9 (05/04/2026), 2.1 (05/04/2026); which is right is not "
        "known, for no version is that of most."
    )


def test_another_model_is_not_held_against_these() -> None:
    other = {"error": None, "gpus": [gpu(0, name="NVIDIA L40S", vbios="95.02.3E.00.0A")]}
    said = lines(host("gpu1"), host("gpu2"), host("gpu3", gpus=other))
    assert said[-1] == "Parts of one model have the same firmware."
    assert "VBIOS NVIDIA L40S 95.02.3E.00.0A 1 gpu3" in said


def test_two_ports_of_a_card_are_one_card() -> None:
    ports = {"error": None, "ports": [card("mlx5_0"), card("mlx5_0")]}
    assert "network card MT_0000000838 28.43.1014 1 gpu1" in lines(host("gpu1", cards=ports))


def test_what_does_not_tell_is_named_and_no_part() -> None:
    away = {"unreachable": True, "msg": "ssh: connect to host 10.0.0.9 port 22: No route"}
    lost = {**gpu(1), "error": "GPU is lost"}
    said = lines(
        host("gpu1"),
        {"inventory_hostname": "gpu2", "__firmware_board": away},
        {"inventory_hostname": "gpu3"},
        host("gpu4", gpus={"error": "driver not loaded", "gpus": []}),
        host(
            "gpu5",
            gpus={"error": None, "gpus": [gpu(0), lost]},
            board="/sys/class/dmi/id/sys_vendor:x\n",
        ),
        host("gpu6", cards={"error": "no answer within 10 s", "ports": None}),
    )
    told = said[said.index("Not told:") :]
    assert "No route" in told[1]
    assert told[1].startswith("gpu2: ")
    assert told[2:] == [
        "gpu3: it was not reached in this run.",
        "gpu4: NVML does not answer: driver not loaded.",
        "gpu5: the kernel does not tell the version of the BIOS.",
        "gpu5: GPU 1 does not answer: GPU is lost.",
        "gpu6: network cards: no answer within 10 s.",
        "",
        "Parts of one model have the same firmware.",
    ]


def test_a_node_without_gpus_and_cards_has_a_board() -> None:
    plain = host("c1", gpus={"skipped": True}, cards={"error": None, "ports": []})
    assert lines(plain)[1:] == [
        "BIOS Supermicro SYS-821GE 2.1 (05/04/2026) 1 c1",
        "",
        "Parts of one model have the same firmware.",
    ]


def test_the_playbook_asks_what_the_table_reads(tmp_path: Path) -> None:
    """On this machine, which is a node without GPUs, and on one that is away."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {
        "gpu1": {**here, "node_gpus": {"model": "none", "count": 0}},
        "gpu2": {"ansible_host": "127.0.0.9", "ansible_port": 1},
    }
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(json.dumps({"slurm_compute": {"hosts": hosts}}))
    done = ansible_processes.run(
        f"--inventory={inventory}",
        "playbooks/describe-firmware.yml",
        "--extra-vars=ansible_become=false",
        cwd=REPOSITORY,
        env={**os.environ, **ansible_processes.PLAIN},
        timeout=120,
    )
    output = " ".join(done.stdout.split())
    assert done.returncode == 0, output
    assert "WHAT MODEL FIRMWARE PARTS NODES" in output
    assert "gpu2: Connection refused." in output
    assert "BIOS" in output  # its version, or that there is none


def test_no_node_is_no_table() -> None:
    with pytest.raises(ValueError, match="no node was asked"):
        firmware_table([])
