"""What NVIDIA's own libraries said without a GPU, held against what this project takes them to say.

The answers are recorded (tests/libraries/README.md): nothing here is a test of a GPU.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pynvml
import pytest
import yaml

from cluster.readers import nvml
from tests.libraries import record
from tests.standins.nvml import library
from validation import explain
from validation.checks import cuda
from validation.payloads import nccl_log

SAID: dict[str, Any] = yaml.safe_load(record.RECORDED.read_text(encoding="utf-8"))
LOGS: dict[str, str] = SAID["nccl"]["logs"]


def line(text: str) -> str | None:
    """What the explanations call a line of a log."""
    lines = explain.known()["lines"]
    return next((one["name"] for one in lines if re.search(one["words"], text)), None)


def test_the_recording_says_what_was_asked() -> None:
    for name in ("nvml", "cuda", "nccl"):
        assert re.search(r" \d+\.\d+", SAID[name]["from"])
    assert SAID["machine"] == "no GPU and no driver"


def test_without_a_driver_the_readers_sentence_is_the_librarys_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in for NVML, told to answer as the real library did, gives the same sentence."""
    assert SAID["nvml"]["init"] == 9
    description = tmp_path / "description"
    description.write_text(library.describe(2, "h100_sxm", "error.nvmlInit = DRIVER_NOT_LOADED"))
    for key, value in library.environment(library.build(tmp_path), description).items():
        monkeypatch.setenv(key, value)
    system, gpus = nvml.ask(20)
    assert system.error == SAID["nvml"]["reader"] == "NVML: Driver Not Loaded (code 9)"
    assert gpus == []


@pytest.mark.parametrize(
    ("constant", "word"),
    [
        (nvml.NOT_SUPPORTED, "Not Supported"),
        (nvml.FUNCTION_NOT_FOUND, "Function Not Found"),
        (nvml.GPU_IS_LOST, "GPU is lost"),
        (nvml.RESET_REQUIRED, "GPU requires reset"),
        (nvml.VERSION_MISMATCH, "Argument version mismatch"),
        (nvml.DEPRECATED, "Requested functionality has been deprecated"),
    ],
)
def test_the_readers_numbers_are_the_librarys(constant: int, word: str) -> None:
    assert SAID["nvml"]["strings"][constant] == word


# The reader's sentences have the words of nvidia-ml-py, which has a table of its own for the codes
# that existed when it was written. Where they are others than the library's, both are known here.
OTHER_WORDS = {
    16: "GPU requires restart",
    17: "The operating system has blocked the request.",
    18: "RM has detected an NVML/RM version mismatch.",
}


def test_the_words_of_sentences_are_the_librarys_or_known() -> None:
    differ = {
        code: word
        for code, text in SAID["nvml"]["strings"].items()
        if (word := str(pynvml.NVMLError(code))) != text and "with code" not in word
    }
    assert differ == OTHER_WORDS


@pytest.mark.parametrize("text", [OTHER_WORDS[18], SAID["nvml"]["strings"][18]])
def test_a_driver_that_was_replaced_under_its_module_is_explained(text: str) -> None:
    assert line(f"NVML: {text} (code 18)") == "driver and library differ"


@pytest.mark.parametrize(
    ("code", "case"),
    [(802, "`system not yet initialized` (802)"), (100, "`no CUDA-capable device`")],
)
def test_the_check_of_cuda_knows_the_drivers_words(code: int, case: str) -> None:
    text = SAID["cuda"]["errors"][code]["text"]
    assert re.search(cuda.CAUSES[case].words, text)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (802, "NVIDIA's Fabric Manager is not ready"),
        (214, "an uncorrectable ECC error reached the program"),
        (2, "CUDA is out of memory"),
    ],
)
def test_explanations_know_the_drivers_words(code: int, name: str) -> None:
    error = SAID["cuda"]["errors"][code]
    assert line(f"RuntimeError: CUDA error: {error['text']} ({error['name']})") == name


def test_cuda_without_a_driver_has_no_device() -> None:
    """And not 3 or 999: a job on such a node reads what the check of CUDA explains."""
    assert SAID["cuda"]["init"] == 100


@pytest.mark.parametrize(
    ("name", "warning", "explained"),
    [
        (
            "no driver",
            "Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'",
            "CUDA finds no driver, or an older one",
        ),
        (
            "no such interface",
            "Bootstrap : no socket interface found",
            "NCCL finds no interface",
        ),
    ],
)
def test_nccls_complaint_is_read_and_explained(name: str, warning: str, explained: str) -> None:
    assert nccl_log.complaint(LOGS[name]) == warning
    assert nccl_log.summarize(LOGS[name]).warnings == (warning,)
    assert line(f"NCCL WARN {warning}") == explained


def test_nccl_says_which_variables_it_took_and_over_what_it_meets() -> None:
    assert "NCCL_SOCKET_IFNAME set by environment to lo\n" in LOGS["no driver"]
    assert nccl_log.summarize(LOGS["no driver"]).bootstrap == ("lo",)


def test_what_differs_between_runs_is_not_recorded() -> None:
    for log in LOGS.values():
        for text in log.splitlines():
            assert re.match(r"(?:\[2026-01-01 00:00:00\] )?node1:1:1 \[0\] ", text)
