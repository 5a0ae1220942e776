"""The node payload, on this machine and on made-up ones."""

import io
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from validation.payloads import node

ROOT = Path(__file__).parents[2]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Puts a shell script in the place of a program; with no body the program is missing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def install(name, body):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    return install


@pytest.fixture
def nvml(monkeypatch):
    """A pynvml with two GPUs; its functions can be replaced."""

    class NVMLError(Exception):
        pass

    fake = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: "NVIDIA H100 80GB HBM3",
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}".encode(),
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=81559 * 2**20),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_this_machine_answers_with_one_document_and_without_torch():
    script = (
        "import sys; from validation.payloads.__main__ import main;"
        "code = main(['node', '{}']); assert 'torch' not in sys.modules; sys.exit(code)"
    )
    before = time.time_ns()
    answer = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "SLURMD_NODENAME": "gpu7"},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = answer.stdout.splitlines()
    found = json.loads(line)
    assert (found["plumbline"], found["payload"]) == (1, "node")
    assert set(found["proof"]) == {"host", "python"}
    assert found["proof"]["host"] == "gpu7"
    measured = found["measured"]
    assert measured["cpus"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert 1 <= measured["cpus_allowed"] <= measured["cpus"]
    assert measured["memory_mb"] > 0
    assert before < measured["time_ns"] < time.time_ns()


def test_the_payload_runs_from_a_zip_on_standard_input():
    """The way it reaches a node: nothing of this package is installed there."""
    archive = io.BytesIO()
    files = [
        ROOT / "validation/__init__.py",
        ROOT / "validation/nodelist.py",
        *(ROOT / "validation/payloads").rglob("*.py"),
    ]
    with zipfile.ZipFile(archive, "w") as bundle:
        for file in files:
            bundle.write(file, file.relative_to(ROOT))
    script = (
        "import sys, tempfile; f = tempfile.NamedTemporaryFile(suffix='.zip');"
        "f.write(sys.stdin.buffer.read()); f.flush(); sys.path.insert(0, f.name);"
        "from validation.payloads.__main__ import main; sys.exit(main(['node', '{}']))"
    )
    answer = subprocess.run(
        [sys.executable, "-I", "-c", script],
        input=archive.getvalue(),
        capture_output=True,
        check=True,
    )
    assert json.loads(answer.stdout)["payload"] == "node"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ([], 2, "usage"),
        (["gemm", "{}"], 2, "usage"),
        (["node", "{"], 1, "not valid JSON"),
        (["ddp", '{"backend": "gloo"}'], 1, 'lacks the key "batch_per_rank"'),
    ],
)
def test_a_wrong_call_ends_with_a_sentence_and_no_document(arguments, code, complaint):
    answer = subprocess.run(
        [sys.executable, "-m", "validation.payloads", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == code
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("plumbline: ")
    assert complaint in line


def test_only_numbered_character_devices_are_gpus(tmp_path, programs):
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia0x"):
        (tmp_path / name).symlink_to("/dev/null")  # followed, so it counts as a device
    (tmp_path / "nvidia2").write_text("a file, as a careless mount leaves it")
    assert node.measure(node.Config(), dev=tmp_path)["gpu_device_nodes"] == 3


def test_memory_is_counted_in_mib(tmp_path, programs):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       16303428 kB\nMemFree:         1 kB\n")
    assert node.measure(node.Config(), meminfo=meminfo)["memory_mb"] == 15921


def test_gpus_are_what_nvml_says(nvml, programs):
    measured = node.measure(node.Config())
    assert measured["nvml"] is None
    assert measured["gpus"][1] == {
        "index": 1,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-1",
        "memory_mb": 81559,
    }


def test_a_gpu_that_fell_off_the_bus_is_told_and_not_skipped(nvml, programs):
    def lost(handle):
        raise nvml.NVMLError("GPU is lost")

    nvml.nvmlDeviceGetMemoryInfo = lost
    measured = node.measure(node.Config())
    assert (measured["gpus"], measured["nvml"]) == ([], "NVML: GPU is lost")


def test_without_pynvml_there_is_a_reason(monkeypatch, programs):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    measured = node.measure(node.Config())
    assert measured["gpus"] == []
    assert "pynvml cannot be imported" in measured["nvml"]


def munge(measured):
    return {key: value for key, value in measured.items() if key.startswith("munge_")}


def test_a_credential_is_made_and_the_given_one_decoded(programs):
    programs("munge", "echo MUNGE:fresh:")
    programs("unmunge", 'read it; [ "$it" = MUNGE:given: ] && echo "STATUS:   Success (0)"')
    measured = node.measure(node.Config(munge_credential="MUNGE:given:"))
    assert munge(measured) == {
        "munge_encoded": "MUNGE:fresh:",
        "munge_encode_error": None,
        "munge_decoded": "Success (0)",
        "munge_decode_error": None,
    }


def test_a_refused_credential_keeps_its_status(programs):
    programs("unmunge", 'echo "STATUS:   Invalid credential (8)"; exit 8')
    measured = node.measure(node.Config(munge_credential="MUNGE:other:"))
    assert measured["munge_decoded"] == "Invalid credential (8)"


def test_without_munge_the_node_still_answers(programs):
    assert munge(node.measure(node.Config(munge_credential="MUNGE:x:"))) == {
        "munge_encoded": None,
        "munge_encode_error": "munge is not installed",
        "munge_decoded": None,
        "munge_decode_error": "unmunge is not installed",
    }


def test_a_broken_munge_says_why(programs):
    programs("munge", "echo 'munge: Error: Failed to access socket' >&2; exit 6")
    measured = node.measure(node.Config())
    assert measured["munge_encode_error"] == (
        "munge exited with 6: munge: Error: Failed to access socket"
    )
    assert measured["munge_decode_error"] is None  # nothing was given to decode


def test_a_munge_that_hangs_is_left_behind(programs, monkeypatch):
    monkeypatch.setattr(node, "MUNGE_TIMEOUT_S", 0.2)
    programs("munge", "exec /bin/sleep 30")
    assert "did not answer within" in node.measure(node.Config())["munge_encode_error"]
