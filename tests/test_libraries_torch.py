"""What torch's build for CUDA said without a GPU, held against what the validator makes of it.

The answers are recorded (tests/libraries/README.md): nothing here is a test of a GPU.
"""

from __future__ import annotations

import builtins
import re
from typing import Any

import pytest
import yaml

from cluster.errors import CannotRun
from tests.libraries import record, record_torch
from tests.test_libraries import line
from validation import causes
from validation.checks.registry import CHECKS
from validation.model import Result, Verdict
from validation.payloads import group, nccl_log
from validation.tests import standin
from validation.tests.healthy_answers import healthy, result

SAID: dict[str, Any] = yaml.safe_load(record_torch.RECORDED.read_text(encoding="utf-8"))
OLDER: dict[str, Any] = yaml.safe_load(record.RECORDED.read_text(encoding="utf-8"))
ANSWERS, WITHOUT, READERS = SAID["answers"], SAID["without"], SAID["readers"]
NCCL = SAID["nccl"]
NO_DRIVER = "Found no NVIDIA driver on your system"


def cuda_with(problem: str) -> Result:
    """The check of CUDA on a node where no GPU starts."""
    answer = healthy("cuda")
    gpus: Any = answer.job.config["gpus"]
    errors = dict.fromkeys(range(gpus), problem)
    document = standin.cuda("gpu1", answer.job.config, errors=errors)
    return result("cuda", answer.job, standin.line(document))


def torch_with(problem: str) -> Result:
    answer = healthy("torch")
    measured = {**answer.document["measured"], "torch": None, "torch_error": problem}
    return result("torch", answer.job, standin.line({**answer.document, "measured": measured}))


def case(found: Result) -> str | None:
    chosen = causes.case(CHECKS[found.check].info, found)
    return None if chosen is None else chosen.name


def test_the_recording_says_what_was_asked() -> None:
    assert SAID["machine"] == "no GPU and no driver"
    assert SAID["versions"] == {"torch": "2.13.0+cu130", "cuda": "13.0", "triton": "3.7.1"}
    assert (ANSWERS["is_available"], ANSWERS["device_count"]) == ({"answer": False}, {"answer": 0})
    major, minor, patch = ANSWERS["nccl_version"]["answer"]
    assert NCCL["version"] == major * 10000 + minor * 100 + patch


def test_a_node_without_a_driver_fails_the_check_of_cuda_with_what_to_do() -> None:
    assert READERS["worker"] == ANSWERS["init"]["error"] == ANSWERS["tensor"]["error"]
    found = cuda_with(READERS["worker"])
    assert found.verdict is Verdict.FAIL
    assert found.message.startswith(f"all 2 GPUs: RuntimeError: {NO_DRIVER}")
    assert case(found) == "found no nvidia driver"


def test_ranks_without_a_driver_say_why_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch for CPUs, told to answer as the real build did, gives the recorded sentence."""
    torch = pytest.importorskip("torch", reason="ranks are torch programs")

    def init() -> None:
        raise RuntimeError(ANSWERS["init"]["error"].removeprefix("RuntimeError: "))

    monkeypatch.setattr(torch.cuda, "init", init)
    with pytest.raises(CannotRun) as refused:
        group._device("nccl", 0)
    assert str(refused.value) == READERS["rank"]
    assert READERS["rank"].startswith(
        f"the backend is nccl, but torch finds no CUDA device: {NO_DRIVER}"
    )


@pytest.mark.parametrize("library", WITHOUT)
def test_a_library_that_is_missing_is_a_sentence_and_not_a_traceback(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuBLAS, cuDNN, NCCL and what else torch loads: of the node, of its GPUs and of its ranks."""
    said = WITHOUT[library]
    of_node, of_gpus = torch_with(said["node"]), cuda_with(said["worker"])
    for found in (of_node, of_gpus):
        assert found.verdict is Verdict.FAIL
        assert f"{library}: cannot open shared object file" in found.message
        assert case(found) == "a missing library"
    assert of_node.message.startswith("torch cannot be imported: ")
    assert line(said["worker"]) == "a library that torch needs is missing"

    real = builtins.__import__

    def missing(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("torch"):
            raise ImportError(said["worker"].removeprefix("ImportError: "))
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(CannotRun) as refused:
        group._distributed("nccl")
    assert str(refused.value) == said["rank"]


@pytest.mark.parametrize(
    ("asked", "explained"),
    [
        ("init", "CUDA finds no driver, or an older one"),
        ("spin", "CUDA finds no driver, or an older one"),
        ("graph", "CUDA finds no driver, or an older one"),
        ("nccl group", "CUDA finds no driver, or an older one"),
        ("triton launches", "Triton finds no driver, or several"),
        ("triton is missing", "Triton is missing"),
    ],
)
def test_what_torch_and_triton_say_is_explained(asked: str, explained: str) -> None:
    assert line(ANSWERS[asked]["error"]) == explained


def test_what_no_driver_says_of_a_kernel_is_known_to_the_check_of_cuda() -> None:
    first, *_ = ANSWERS["spin"]["error"].splitlines()
    assert case(cuda_with(first)) == "found no nvidia driver"


def test_triton_compiles_without_a_gpu() -> None:
    assert ANSWERS["triton compiles for sm_90"] == {"answer": True}


def test_nccl_writes_where_a_rank_asks_it_to_and_what_a_rank_reads() -> None:
    """The payloads' own settings, as the real library takes them."""
    seen = nccl_log.summarize(NCCL["file"])
    assert seen.bootstrap == ("lo",)
    assert nccl_log.complaint(NCCL["file"]) == (
        "Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"
    )
    assert "NCCL_SOCKET_IFNAME set to lo\n" in NCCL["file"]


@pytest.mark.parametrize(
    ("name", "explained"),
    [
        ("no driver", "CUDA finds no driver, or an older one"),
        ("no such interface", "NCCL finds no interface"),
    ],
)
def test_torchs_own_nccl_complains_in_words_that_are_read(name: str, explained: str) -> None:
    complaint = nccl_log.complaint(NCCL["logs"][name])
    assert complaint == nccl_log.complaint(OLDER["nccl"]["logs"][name])
    assert line(f"NCCL WARN {complaint}") == explained


def test_two_releases_of_nccl_differ_in_one_word_for_an_error() -> None:
    newer = OLDER["nccl"]["strings"]
    differ = {code: text for code, text in NCCL["strings"].items() if text != newer[code]}
    assert differ == {8: "unknown result code"}  # a timeout, which later releases have a word for


def test_what_differs_between_runs_is_not_recorded() -> None:
    for log in (*NCCL["logs"].values(), NCCL["file"]):
        for text in log.splitlines():
            assert re.match(r"(?:\[2026-01-01 00:00:00\] )?node1:1:1 \[0\] ", text)
