"""The programs of the examples, with processes on this machine in place of GPUs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="scripts/setup --with-torch")

EXAMPLES = Path(__file__).resolve().parents[1] / "files/examples"
ENVIRON = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def run(*argv: str) -> str:
    done = subprocess.run(
        argv, cwd=EXAMPLES, env=ENVIRON, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(said: str) -> list[float]:
    return [float(found) for found in re.findall(r"loss ([0-9.]+)", said)]


@pytest.mark.parametrize("program", ["ddp", "fsdp", "tensor_parallel", "pipeline_parallel"])
def test_two_processes_learn(program):
    said = run(*TORCHRUN, f"{program}.py")
    assert "2 processes, gloo" in said
    first, *_, last = losses(said)
    assert last < first / 2


def test_one_process_learns_and_knows_what_it_has_not_seen():
    said = run(sys.executable, "one_gpu.py")
    assert float(said.rsplit(maxsplit=1)[-1]) > 0.9


def test_speed_up_is_against_the_first_line(tmp_path):
    result = tmp_path / "result"
    result.write_text('{"gpus": 2, "seconds": 8.0}\n{"gpus": 8, "seconds": 2.5}\n')
    lines = run(sys.executable, "speedup.py", str(result)).splitlines()
    assert lines[1].split() == ["2", "8.00", "1.00", "100%"]
    assert lines[2].split() == ["8", "2.50", "3.20", "80%"]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_training_that_was_stopped_ends_as_one_that_was_not(tmp_path, number):
    whole = run(sys.executable, "checkpoint.py", str(tmp_path / "whole.pt"), "--steps", "30")
    saved = tmp_path / "stopped.pt"
    argv = [sys.executable, "checkpoint.py", str(saved), "--steps", "30"]
    slow = subprocess.Popen(
        [*argv, "--every=5", "--pause=0.2"], cwd=EXAMPLES, env=ENVIRON, stdout=subprocess.PIPE
    )
    until = time.monotonic() + 120
    while not saved.exists() and time.monotonic() < until:
        time.sleep(0.05)
    slow.send_signal(number)
    said = slow.communicate(timeout=120)[0].decode()
    assert slow.returncode == 75, said
    assert "stopped after step" in said
    again = run(*argv)
    begin = re.search(r"from step (\d+) of 30", again)
    assert begin is not None
    assert 5 <= int(begin[1]) < 30
    assert again.splitlines()[-1] == whole.splitlines()[-1]
