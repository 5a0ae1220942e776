"""One machine alone: no Slurm, no inventory; the launcher runs the payloads itself."""

import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.declaration import Gpus
from cluster.errors import EnvironmentProblem
from validation import local, run
from validation.model import Outcome
from validation.payloads import node
from validation.tests.conftest import make_plan
from validation.tests.processes import runs, wait_for

NAMES = ["NVIDIA H100 80GB HBM3"] * 2


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Runs with --local in an empty folder, on a machine that shows the given GPUs."""

    def go(*arguments, shows=None):
        monkeypatch.chdir(tmp_path)
        if shows is not None:
            monkeypatch.setattr(local, "gpus", lambda *_: shows)
        return run.main(["--local", "--output", str(tmp_path / "run"), *arguments])

    return go


def test_without_a_gpu_nothing_is_green(alone, capsys, monkeypatch):
    monkeypatch.setattr(node, "measure", lambda _: {**MEASURED, "nvml": "NVML: Driver Not Loaded"})
    assert alone() == 2
    err = capsys.readouterr().err
    assert "this machine has no GPU" in err
    assert "NVML: Driver Not Loaded" in err


MEASURED = {"cpus": 8, "memory_mb": 32000, "gpu_device_nodes": 0, "gpus": [], "nvml": None}


def test_what_the_machine_shows_is_declared(monkeypatch):
    gpus = [{"name": name} for name in NAMES]
    monkeypatch.setattr(
        node, "measure", lambda _: {**MEASURED, "gpu_device_nodes": 2, "gpus": gpus}
    )
    declared = local.declaration("/usr/bin/python3", "box")
    (here,) = declared.nodes.values()
    assert (here.name, here.cpus, here.memory_mb) == ("box", 8, 32000)
    assert here.gpus == Gpus("h100_sxm", 2)


def test_a_gpu_that_the_driver_lost_is_still_declared():
    assert local.gpus(4, NAMES, None) == Gpus("h100_sxm", 4)
    assert local.gpus(2, [], "NVML: Driver/library version mismatch") == Gpus("unknown", 2)


def test_a_model_that_nobody_knows_has_a_name_of_its_own():
    assert local.gpus(1, ["NVIDIA Tomorrow 1 TB"], None) == Gpus("nvidia-tomorrow-1-tb", 1)


def test_two_models_are_refused():
    with pytest.raises(EnvironmentProblem, match=r"of more than one model \(NVIDIA A, NVIDIA B\)"):
        local.gpus(2, ["NVIDIA B", "NVIDIA A"], None)


def test_gpus_that_are_not_there_fail_the_run(alone, tmp_path, capsys, monkeypatch):
    """The payload runs for real: here it finds none of the two."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no Slurm
    assert alone("--only", "gpus,tmp", shows=Gpus("h100_sxm", 2)) == 1
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [item["name"] for item in summary["nodes"]] == [socket.gethostname()]
    results = (tmp_path / "run" / "results.jsonl").read_text().splitlines()
    verdicts = {r["check"]: (r["verdict"], r["message"]) for r in map(json.loads, results)}
    assert verdicts["gpus"] == ("fail", "0 GPU device nodes found, 2 declared")
    assert verdicts["tmp"][0] == "pass"
    assert "slurm_state" not in verdicts
    assert not list(Path("/tmp").glob(f"plumbline-{summary['run']}-*"))


def test_what_to_do_is_done_on_this_machine(alone, capsys):
    """No way to log in to it, and no Slurm that could drain it."""
    alone("--only", "gpus", shows=Gpus("h100_sxm", 2))
    out = capsys.readouterr().out
    assert "next: ls -l /dev/nvidia[0-9]*; nvidia-smi -L\n" in out
    assert "python -m validation.run --local --only gpus\n" in out
    assert "ssh" not in out
    assert "scontrol" not in out


def test_the_gpus_payloads_run_for_real_on_cpus(alone, tmp_path, capsys):
    """Virtual GPUs are computed on CPUs: it shows that all of it works, and judges no speed."""
    assert alone("--skip", "gpus", shows=Gpus("virtual", 2)) == 0
    results = (tmp_path / "run" / "results.jsonl").read_text().splitlines()
    verdicts = {r["check"]: r["verdict"] for r in map(json.loads, results)}
    computed = ("gemm", "hbm", "copies", "peers", "repeatable")
    assert {name: verdicts[name] for name in computed} == dict.fromkeys(computed, "pass")
    assert verdicts["driver"] == "skip"
    assert "GB/s" not in capsys.readouterr().out.partition("details")[0].partition("threshold")[2]


def test_a_payload_that_hangs_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    plan = make_plan()
    job = replace(plan.node_jobs[0], run_limit_s=1, config={"seconds": 1})
    python = tmp_path / "python"
    started = tmp_path / "started"
    python.write_text(
        "#!/bin/sh\necho 'plumbline: started job - node gpu1 time 1' >&2\n"
        f"sleep 60 & echo $! >{started}\nwait\n"
    )
    python.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    client = local.LocalClient(f"20260101T000000Z-local{os.getpid()}", str(python))
    batch = client.prepare([[job]], 64)
    batch.start()
    deadline = time.monotonic() + 30
    while not (progress := batch.poll()).replies:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (reply,) = progress.replies
    assert reply.outcome is Outcome.RUN_LIMIT
    wait_for(lambda: not runs(int(started.read_text())), seconds=5)
    batch.close()


def test_local_is_one_of_three_ways(capsys):
    with pytest.raises(SystemExit):
        run.main(["--local", "--here"])
    assert "not allowed with argument" in capsys.readouterr().err
