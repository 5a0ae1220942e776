"""srun's command line, and the code that travels on its stdin."""

import importlib.util
import io
import json
import os
import shlex
import subprocess
import sys
import venv
import zipfile
from types import SimpleNamespace

import pytest

from validation import allocations
from validation.slurm import job as jobs
from validation.tests.conftest import make_plan


def shown(commands):
    """Commands as in a shell, without the program that starts a payload."""
    texts = []
    for first, *others in commands:
        lines = [first]
        for word in others:
            quoted = shlex.quote("BOOTSTRAP" if word == jobs.BOOTSTRAP else word)
            if len(f"{lines[-1]} {quoted}") > 100:
                lines.append(" ")
            lines[-1] += f" {quoted}"
        texts.append("\n".join(lines) + "\n")
    return "\n".join(texts)


def commands_of(plan):
    return [jobs.command(plan.run_id, job, plan.python) for job in plan.jobs]


def test_the_command_lines_on_virtual_gpus(golden):
    golden("srun_virtual.txt", shown(commands_of(make_plan())))


def test_the_command_lines_on_real_gpus_and_cpus(golden):
    nodes = (("h1", "h100_sxm", 8), ("h2", "h100_sxm", 8), ("c1", "none", 0), ("c2", "none", 0))
    golden("srun_mixed.txt", shown(commands_of(make_plan(*nodes))))


def test_the_command_lines_of_an_allocation(golden):
    plan = make_plan(("h1", "h100_sxm", 8), ("h2", "h100_sxm", 8))
    hosts = frozenset(("h1", "h2"))
    lanes = (plan.node_lanes, [list(group.jobs) for group in plan.groups])
    wishes = ("--account=ops",)
    commands = []
    for tier in lanes:
        (allocation,) = allocations.share(tier, hosts, 64)
        commands.append(jobs.allocation_command(plan.run_id, allocation, wishes))
        commands += [
            jobs.step_command(plan.run_id, job, plan.python, wishes) for job in allocation.jobs
        ]
    golden("allocations.txt", shown(commands))


def test_slurms_limit_comes_after_the_launchers():
    times = [jobs.slurm_time(seconds) for seconds in (1, 59, 60, 61, 300)]
    assert times == ["2:00", "2:00", "2:00", "3:00", "6:00"]


def test_the_bundle_holds_what_payloads_import_and_nothing_else():
    with zipfile.ZipFile(io.BytesIO(jobs.bundle())) as archive:
        names = archive.namelist()
    assert {"validation/__init__.py", "cluster/hostlist.py"} <= set(names)
    assert {"validation/payloads/__main__.py", "validation/payloads/gpu_worker.py"} <= set(names)
    others = {name for name in names if not name.startswith("validation/payloads/")}
    assert {name for name in others if not name.startswith("cluster/")} == {
        "validation/__init__.py",
        "pynvml.py",
    }
    # Every start of a task reads the archive, so nothing of Slurm's or a role's is in it.
    own = ("apart", "errors", "hostlist", "processes", "text")
    readers = ("__init__", "infiniband", "kernel_log", "mounts", "nccl_ras", "nvml")
    assert others <= {
        *("validation/__init__.py", "cluster/__init__.py", "pynvml.py"),
        *(f"cluster/{name}.py" for name in own),
        *(f"cluster/readers/{name}.py" for name in readers),
    }
    assert jobs.bundle.__wrapped__() == jobs.bundle()


def test_a_task_has_pynvml_where_its_python_has_none(tmp_path):
    """As in a container, which needs Python and torch."""
    asked = {"nvml_timeout_s": 20, "nonce": "x"}
    bare = tmp_path / "bare"
    venv.create(bare, symlinks=True)
    done = subprocess.run(
        [bare / "bin/python", "-I", "-c", jobs.BOOTSTRAP, "health", json.dumps(asked)],
        input=jobs.bundle(),
        capture_output=True,
        cwd=tmp_path,
        check=True,
    )
    error = json.loads(done.stdout)["measured"]["nvml"]["error"]
    assert "NVML Shared Library Not Found" in error


def test_pynvml_is_not_packed_where_there_is_none(monkeypatch):
    for found in (None, SimpleNamespace(origin="/x/pynvml/__init__.py")):
        monkeypatch.setattr(importlib.util, "find_spec", lambda _, found=found: found)
        with zipfile.ZipFile(io.BytesIO(jobs.bundle.__wrapped__())) as archive:
            assert not [name for name in archive.namelist() if "pynvml" in name]


def test_the_bootstrap_runs_a_payload_out_of_the_bundle(tmp_path):
    task = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "gpu1", "SLURM_LOCALID": "0"}
    environment = {**os.environ, **task, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-I", "-c", jobs.BOOTSTRAP, "node", '{"munge_credential": null}'],
        input=jobs.bundle(),
        capture_output=True,
        env=environment,
        cwd=tmp_path,
        check=True,
    )
    document = json.loads(done.stdout)
    assert document["payload"] == "node"
    assert document["proof"]["host"] == "gpu1"
    assert done.stderr.startswith(b"plumbline: started job 7 node gpu1 time ")
    assert list(tmp_path.iterdir()) == []


def bootstrap(folder, code, **variables):
    """A task with the given payload instead of the real one."""
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.writestr("validation/__init__.py", "")
        archive.writestr("validation/payloads/__init__.py", "")
        archive.writestr("validation/payloads/__main__.py", code)
    environment = {**os.environ, "TMPDIR": str(folder), **variables}
    return subprocess.Popen(
        [sys.executable, "-I", "-c", jobs.BOOTSTRAP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ), bundle.getvalue()


LEAVES = """
import os, tempfile, time
end = os._exit
def main(arguments):
    tempfile.mkdtemp()
    print(os.environ["TMPDIR"], flush=True)
    time.sleep(float(os.environ["SLEEP"]))
    return 0
"""


def test_what_torch_leaves_in_tmp_goes_with_the_task(tmp_path):
    task, bundle = bootstrap(tmp_path, LEAVES, SLEEP="0")
    out, _ = task.communicate(bundle)
    assert task.returncode == 0
    assert out.decode().startswith(f"{tmp_path}/plumbline-{os.getuid()}-{task.pid}-")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_task_left_goes_with_the_next_and_a_running_ones_stays(tmp_path):
    tasks = [bootstrap(tmp_path, LEAVES, SLEEP="60") for _ in range(2)]
    folders = []
    for task, bundle in tasks:
        task.stdin.write(bundle)
        task.stdin.close()
        folders.append(task.stdout.readline().decode().strip())
    killed, running = (task for task, _ in tasks)
    killed.kill()
    killed.wait()
    assert len(list(tmp_path.iterdir())) == 2
    another, bundle = bootstrap(tmp_path, LEAVES, SLEEP="0")
    another.communicate(bundle)
    assert [str(path) for path in tmp_path.iterdir()] == folders[1:]
    running.kill()
    running.wait()
    for task in (killed, running):
        task.stdout.close()


def test_a_task_starts_where_nothing_can_be_written():
    """The archive lies in memory; a full or read-only /tmp is then for the check to tell."""
    code = "import os\nend = os._exit\ndef main(arguments): return 7\n"
    task, bundle = bootstrap("/proc", code)
    task.communicate(bundle)
    assert task.returncode == 7


def test_the_bootstrap_passes_a_payloads_failure_on():
    done = subprocess.run(
        [sys.executable, "-I", "-c", jobs.BOOTSTRAP, "node", '{"colour": 1}'],
        input=jobs.bundle(),
        capture_output=True,
        env={**os.environ, "SLURM_LOCALID": "1"},
        check=False,
    )
    assert done.returncode == 1
    assert b"started" not in done.stderr  # one line for each node, not for each rank
    assert b"plumbline: node" in done.stderr
    assert b"colour" in done.stderr


def test_a_document_has_only_numbers_that_json_has():
    with pytest.raises(ValueError, match="JSON"):
        jobs.encode({"limit_s": float("nan")})
