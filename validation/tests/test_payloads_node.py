"""The node payload, on this machine and on made-up ones."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from validation.payloads import node
from validation.slurm.job import bundle

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


PYNVML = """
import time
class NVMLError(Exception):
    value = 15
def nvmlInit(): pass
def nvmlSystemGetDriverVersion(): return "580.82.07"
def nvmlSystemGetNVMLVersion(): return "13.580.82.07"
def nvmlSystemGetCudaDriverVersion_v2(): return 13000
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(handle): return "NVIDIA H100 80GB HBM3"
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}".encode()
def nvmlDeviceGetMigMode(handle): return 0, 0
class nvmlDeviceGetMemoryInfo:
    def __init__(self, handle): self.total = 81559 * 2**20
"""


@pytest.fixture
def nvml(tmp_path, monkeypatch):
    """Puts a pynvml with two GPUs first on the path, and below it lines of the test's own."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def install(text, base=PYNVML):
        (folder / "pynvml.py").write_text(base + text)

    return install


def test_this_machine_answers_with_one_document_and_without_torch():
    script = (
        "import sys; from validation.payloads.__main__ import main;"
        "code = main(['node', '{\"nonce\": \"run-7f\"}']); assert 'torch' not in sys.modules;"
        "sys.exit(code)"
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
    before_it, line = answer.stdout.splitlines()
    assert before_it == ""  # whatever was printed before without a newline
    document = json.loads(line)
    assert (document["plumbline"], document["payload"], document["nonce"]) == (1, "node", "run-7f")
    assert set(document["proof"]) == {"container", "host", "python"}
    assert document["proof"]["host"] == "gpu7"
    measured = document["measured"]
    assert measured["cpus"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert measured["cpus_allowed"] == len(os.sched_getaffinity(0))
    assert measured["memory_mb"] > 0
    assert before < measured["time_ns"] < time.time_ns()


def test_the_payload_runs_from_a_zip_on_standard_input():
    """The way it reaches a node: nothing of this package is installed there."""
    script = (
        "import sys, tempfile; f = tempfile.NamedTemporaryFile(suffix='.zip');"
        "f.write(sys.stdin.buffer.read()); f.flush(); sys.path.insert(0, f.name);"
        "from validation.payloads.__main__ import main; sys.exit(main(['node', '{}']))"
    )
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],  # without this checkout
        input=bundle(),
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
    nvml("")
    measured = node.measure(node.Config())
    assert measured["nvml"] is None
    assert measured["gpus"][1] == {
        "index": 1,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-1",
        "memory_mb": 81559,
    }


LOST = """
def nvmlDeviceGetUUID(handle):
    if handle == 1:
        raise NVMLError("GPU is lost")
    return "GPU-0"
"""
STUCK = """
def nvmlDeviceGetName(handle):
    time.sleep(600 if handle == 1 else 0)
    return "NVIDIA H100 80GB HBM3"
"""


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (LOST, "GPU 1: NVML: GPU is lost (code 15)"),
        (STUCK, "GPU 1: NVML did not answer within 3 s when it was asked for name"),
    ],
)
def test_a_gpu_that_does_not_answer_is_named_and_the_others_are_listed(
    nvml, programs, monkeypatch, fault, why
):
    monkeypatch.setattr(node, "NVML_TIMEOUT_S", 3)
    nvml(fault)
    measured = node.measure(node.Config())
    assert [gpu["index"] for gpu in measured["gpus"]] == [0]
    assert measured["nvml"] == why


def test_without_pynvml_there_is_a_reason(nvml, programs):
    nvml("raise ImportError('none here')", base="")
    measured = node.measure(node.Config())
    assert measured["gpus"] == []
    assert measured["nvml"] == "pynvml cannot be imported: none here"


def munge(measured):
    """The credential that was made or why not, and what the given one is or why not."""
    names = ("encoded", "encode_error", "decoded", "decode_error")
    return tuple(measured[f"munge_{name}"] for name in names)


def test_a_credential_is_made_and_the_given_one_decoded(programs):
    programs("munge", "echo MUNGE:fresh:")
    programs("unmunge", 'read it; [ "$it" = MUNGE:given: ] && echo "STATUS:   Success (0)"')
    measured = node.measure(node.Config(munge_credential="MUNGE:given:"))
    assert munge(measured) == ("MUNGE:fresh:", None, "Success (0)", None)


def test_a_refused_credential_keeps_its_status(programs):
    programs("unmunge", 'echo "STATUS:   Invalid credential (8)"; exit 8')
    measured = node.measure(node.Config(munge_credential="MUNGE:other:"))
    assert measured["munge_decoded"] == "Invalid credential (8)"


def test_without_munge_the_node_still_answers(programs):
    measured = node.measure(node.Config(munge_credential="MUNGE:x:"))
    missing = "cannot be started: No such file or directory"
    assert munge(measured) == (None, f"munge {missing}", None, f"unmunge {missing}")


def test_a_broken_munge_says_why(programs):
    programs("munge", "echo 'munge: Error: no socket' >&2; exit 6")
    measured = node.measure(node.Config())  # nothing is given to decode
    why = "munge ended with exit status 6: munge: Error: no socket"
    assert munge(measured) == (None, why, None, None)


def test_a_munge_that_hangs_is_left_behind(programs, monkeypatch):
    monkeypatch.setattr(node, "MUNGE_TIMEOUT_S", 0.2)
    programs("munge", "exec /bin/sleep 30")
    assert "did not answer within" in node.measure(node.Config())["munge_encode_error"]


# --- room on the disks -----------------------------------------------------------------------


def test_tmp_is_written_to_and_nothing_is_left_there(tmp_path, programs):
    folder = node.measure(node.Config(), tmp=tmp_path)["tmp"]
    assert (folder["path"], folder["error"]) == (str(tmp_path), None)
    assert folder["free_mb"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_a_full_folder_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert node._folder(tmp_path).error == "No space left"
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_only_a_part_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "write", lambda *_: 4096)
    assert node._folder(tmp_path).error == "No space left on device"


def statvfs(**changes):
    fields = {"f_flag": 0, "f_bavail": 1 << 20, "f_frsize": 4096}
    return lambda _: SimpleNamespace(**{**fields, **changes})


def test_a_read_only_folder_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", statvfs(f_flag=os.ST_RDONLY))
    assert node._folder(tmp_path) == node.Folder(str(tmp_path), "Read-only file system", 4096)


def test_where_this_user_may_not_write_the_filesystem_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", statvfs())
    assert node._folder(tmp_path).error is None
    monkeypatch.setattr(os, "statvfs", statvfs(f_bavail=0))
    assert node._folder(tmp_path).error == "No space left on device"


def test_a_missing_folder_says_so(tmp_path):
    assert node._folder(tmp_path / "none").error == "No such file or directory"


def test_the_spool_is_where_slurm_says(tmp_path, programs, monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "gpu7")
    monkeypatch.setattr("socket.gethostname", lambda: "host7.example.org")
    programs("scontrol", f"echo 'SlurmdSpoolDir          = {tmp_path}/%n-%h/spool'")
    assert node.measure(node.Config())["spool"] == {
        "path": f"{tmp_path}/gpu7-host7/spool",
        "error": "No such file or directory",
        "free_mb": 0,
    }


def test_without_slurm_the_spool_is_the_usual_one_or_none(tmp_path, programs, monkeypatch):
    monkeypatch.setattr(node, "SPOOL", str(tmp_path))
    assert node.measure(node.Config())["spool"]["path"] == str(tmp_path)
    monkeypatch.setattr(node, "SPOOL", str(tmp_path / "none"))
    assert node.measure(node.Config())["spool"] is None


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/job/step\n", {"job/memory.max": "2147483648", "job/step/memory.max": "max"}, 2048),
        ("0::/job\n", {"job/memory.max": "max"}, None),
        ("4:cpu,memory:/job\n", {"memory/job/memory.limit_in_bytes": "1073741824"}, 1024),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("0::/gone\n", {}, None),
    ],
)
def test_the_least_memory_that_any_control_group_allows_counts(tmp_path, own, files, limit):
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert node.memory_limit_mb(tmp_path / "own", tmp_path / "cgroup") == limit


def test_a_limit_is_found_where_a_container_sees_its_own_group_as_the_first(tmp_path):
    """Or a node's processes take what the machine has, and not what the job may."""
    root = tmp_path / "cgroup"
    (tmp_path / "own").write_text("4:memory:/pod/node/slurm/job\n")
    (root / "memory/slurm/job").mkdir(parents=True)
    (root / "memory/slurm/job/memory.limit_in_bytes").write_text("2147483648\n")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"2632 2628 0:32 /pod/node {root}/memory rw - cgroup cgroup rw,memory\n")
    assert node.memory_limit_mb(tmp_path / "own", root, mounts) == 2048


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("echo 2.6.0+debian", ("2.6.0+debian", None)),
        (
            "echo 'Traceback' >&2; echo 'ImportError: libgomp.so.1' >&2; exit 1",
            (None, "torch cannot be imported: ImportError: libgomp.so.1"),
        ),
        ("exit 139", (None, "torch cannot be imported: exit status 139")),
        ("exec /bin/sleep 30", (None, "import torch: python did not answer within 0.2 s")),
    ],
)
def test_torch_is_imported_in_a_process_of_its_own(programs, monkeypatch, body, answer):
    programs("python", body)
    monkeypatch.setattr(sys, "executable", "python")
    monkeypatch.setattr(node, "TORCH_TIMEOUT_S", 5 if "sleep" not in body else 0.2)
    assert node._torch() == answer


def test_torch_is_not_touched_unless_asked_for(programs, monkeypatch):
    monkeypatch.setattr(node, "_torch", lambda: ("2.6.0", None))
    assert node.measure(node.Config(torch=True))["torch"] == "2.6.0"
    monkeypatch.setattr(node, "_torch", lambda: pytest.fail("it was imported"))
    measured = node.measure(node.Config())
    assert (measured["torch"], measured["torch_error"]) == (None, None)
