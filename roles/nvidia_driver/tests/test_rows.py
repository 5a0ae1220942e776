"""The rows that a node's driver is verified by: each can fail, and says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from playbooks.filter_plugins.verify import verify_failures
from roles.nvidia_driver.plugin_utils import rows

NAMES = ["NVIDIA H100 80GB HBM3"]
EXPECTED: dict[str, Any] = {
    "source": "cuda_repo",
    "version": "580",
    "modules": "open",
    "model": "h100_sxm",
    "names": NAMES,
    "count": 2,
    "hold": True,
    "storage": False,
    "problems": [],
}
STATE: dict[str, Any] = {
    "change": [],
    "others": [],
    "hold": [],
    "loaded": "580.95.05",
    "loaded_modules": "open",
    "module": "580.95.05",
    "nouveau": False,
    "storage": False,
}


def gpu(index: int, **values: Any) -> dict[str, Any]:
    known = {"name": NAMES[0], "uuid": f"GPU-{index}", "persistence": "on", **values}
    return {"index": index, "error": None, "values": known}


def answer(**more: Any) -> dict[str, Any]:
    healthy = {"error": None, "driver": "580.95.05", "count": 2, "gpus": [gpu(0), gpu(1)]}
    return healthy | more


def failures(
    nvml: dict[str, Any] | None = None, state: dict[str, Any] | None = None, **expected: Any
) -> list[str]:
    table = rows.rows(nvml or answer(), STATE | (state or {}), EXPECTED | expected)
    return verify_failures(table)


def test_a_healthy_node_passes_with_a_row_for_each_question() -> None:
    table = rows.rows(answer(), STATE, EXPECTED)
    assert {row["verdict"] for row in table} == {"PASS"}
    assert [row["what"] for row in table] == [
        "packages",
        "hold on upgrades",
        "loaded kernel module",
        "kind of kernel module",
        "NVML",
        "driver",
        "number of GPUs",
        "model of all GPUs",
        "persistence mode",
    ]


LOST = {
    "index": 1,
    "error": "NVML: GPU is lost (code 15)",
    "values": dict.fromkeys(gpu(1)["values"]),
}


@pytest.mark.parametrize(
    ("nvml", "state", "expected", "words"),
    [
        ({}, {"change": ["libcuda1"]}, {}, "packages is without libcuda1, expected installed"),
        (
            {},
            {"others": ["nvidia-kernel-dkms"]},
            {},
            "packages is with nvidia-kernel-dkms, expected installed; apply the role",
        ),
        ({}, {"hold": ["libcuda1"]}, {}, "hold on upgrades is not for libcuda1, expected set"),
        ({}, {"nouveau": True}, {}, "nouveau is loaded, expected not loaded; reboot the node"),
        (
            {},
            {"loaded": "570.1.1"},
            {},
            "loaded kernel module is 570.1.1, expected 580.95.05; reboot the node",
        ),
        ({}, {"loaded": "", "loaded_modules": "open"}, {}, "loaded kernel module is not loaded"),
        ({}, {"module": ""}, {}, "installed kernel module is nothing, expected 580; see dkms"),
        ({}, {"loaded_modules": "proprietary"}, {}, "kind of kernel module is proprietary"),
        ({"driver": "575.57.08"}, {}, {}, "driver is 575.57.08, expected 580;"),
        ({"driver": "5800.1"}, {}, {}, "driver is 5800.1, expected 580;"),
        ({}, {}, {"version": "580.95.06"}, "driver is 580.95.05, expected 580.95.06;"),
        ({"count": 1}, {}, {}, "number of GPUs is 1, expected 2; see lspci"),
        ({"gpus": [gpu(0), LOST]}, {}, {}, "GPU 1 is NVML: GPU is lost (code 15)"),
        (
            {"gpus": [gpu(0), gpu(1, name="NVIDIA H200")]},
            {},
            {},
            "model of all GPUs is NVIDIA H200, expected h100_sxm; h100_sxm is known as NVIDIA H100",
        ),
        ({"gpus": [gpu(0, name=None), gpu(1)]}, {}, {}, "is a GPU without a name, expected h100"),
        (
            {},
            {},
            {"model": "rtx_6000", "names": []},
            "is NVIDIA H100 80GB HBM3, expected a name of rtx_6000; nobody knows one",
        ),
        ({"gpus": [gpu(0), gpu(1, persistence="off")]}, {}, {}, "persistence mode is off on GPU 1"),
        ({"gpus": [gpu(0), gpu(1, persistence=None)]}, {}, {}, "persistence mode is off on GPU 1"),
        ({"count": 2, "gpus": []}, {}, {}, "model of all GPUs is nothing, expected h100_sxm"),
    ],
)
def test_what_is_wrong_fails(
    nvml: dict[str, Any], state: dict[str, Any], expected: dict[str, Any], words: str
) -> None:
    sentences = failures(answer(**nvml), state, **expected)
    assert [sentence for sentence in sentences if words in sentence], sentences


def test_a_driver_that_does_not_answer_is_one_failure_and_no_pass_of_others() -> None:
    error = "NVML: Driver Not Loaded (code 9)"
    reply: dict[str, Any] = {"error": error, "driver": None, "count": None, "gpus": []}
    (sentence,) = failures(reply)
    assert sentence.startswith(f"nvidia_driver: NVML is {error}, expected answers; see journalctl")


def test_a_preinstalled_driver_is_verified_and_not_looked_for_among_packages() -> None:
    whats = [
        row["what"] for row in rows.rows(answer(), STATE, EXPECTED | {"source": "preinstalled"})
    ]
    assert "packages" not in whats
    assert {"driver", "number of GPUs", "model of all GPUs"} <= set(whats)


def test_a_declaration_that_contradicts_itself_passes_nowhere() -> None:
    (sentence,) = failures(problems=["nvidia_driver_branch is 58."])
    assert "declaration is nvidia_driver_branch is 58., expected one that can be" in sentence


def test_only_a_declaration_makes_something_not_apply() -> None:
    (row,) = rows.rows({}, STATE, EXPECTED | {"source": "none"})
    assert row["verdict"] == "SKIP"
    skipped = [
        row["what"]
        for row in rows.rows(answer(), STATE, EXPECTED | {"source": "preinstalled", "version": ""})
        if row["verdict"] == "SKIP"
    ]
    assert skipped == ["driver"]


@pytest.mark.parametrize("loaded", [True, False])
def test_gpudirect_storage_needs_its_module(loaded: bool) -> None:
    failed = failures(state={"storage": loaded}, storage=True)
    assert [text.split(",")[0] for text in failed] == [
        "nvidia_driver: nvidia_fs (GPUDirect Storage) is not loaded"
    ] * (not loaded)
