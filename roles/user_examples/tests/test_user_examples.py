"""The programs of the examples, with processes on this machine in place of GPUs.

What molecule/default has users submit on nodes (test_6_examples.py) is run here by --full alone:
there they have this Python's torch, which is newer.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import until
from validation.tests.torch_processes import Order, started

pytest.importorskip("torch", reason="scripts/setup --with-torch")

EXAMPLES = Path(__file__).resolve().parents[1] / "files/examples"
# One thread for each process, as across.sh says.
PROGRAM = """
import runpy, sys, torch
torch.set_num_threads(1)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
on_nodes_too = pytest.mark.long


def order(*argv: str, **environ: str) -> Order:
    variables = os.environ | {"CUDA_VISIBLE_DEVICES": ""} | environ
    return Order(PROGRAM, argv, variables, str(EXAMPLES))


def run(*argv: str) -> str:
    with started([order(*argv)]) as (process,):
        assert process.wait() == 0, process.out + process.err
        return process.out


def run_together(*argv: str) -> str:
    """Two processes, as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    orders = [order(*argv, RANK=str(n), LOCAL_RANK=str(n), **world) for n in range(2)]
    with started(orders) as processes:
        results = [(process.wait(), process.out, process.err) for process in processes]
    assert [code for code, _, _ in results] == [0, 0], results
    return "".join(out for _, out, _ in results)


def losses(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"loss ([0-9.]+)", output)]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("ddp", marks=on_nodes_too),
        "fsdp",
        pytest.param("tensor_parallel", marks=on_nodes_too),
        "pipeline_parallel",
    ],
)
def test_two_processes_learn(program):
    output = run_together(f"{program}.py")
    assert "2 processes, gloo" in output
    first, *_, last = losses(output)
    assert last < first / 2


@on_nodes_too
def test_one_process_learns_and_knows_what_it_has_not_seen():
    output = run("one_gpu.py")
    assert float(output.rsplit(maxsplit=1)[-1]) > 0.9


def test_speed_up_is_against_the_first_line(tmp_path):
    result = tmp_path / "result"
    result.write_text('{"gpus": 2, "seconds": 8.0}\n{"gpus": 8, "seconds": 2.5}\n')
    command = [sys.executable, str(EXAMPLES / "speedup.py"), str(result)]
    lines = subprocess.check_output(command, text=True).splitlines()
    assert lines[1].split() == ["2", "8.00", "1.00", "100%"]
    assert lines[2].split() == ["8", "2.50", "3.20", "80%"]


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGUSR1, marks=on_nodes_too), signal.SIGTERM]
)
def test_a_training_that_was_stopped_ends_as_one_that_was_not(tmp_path, number):
    whole = run("checkpoint.py", str(tmp_path / "whole.pt"), "--steps", "30")
    saved = tmp_path / "stopped.pt"
    argv = ["checkpoint.py", str(saved), "--steps", "30"]
    with started([order(*argv, "--every=5", "--pause=0.2")]) as (slow,):
        until(saved.exists, 120)
        slow.send(number)
        assert slow.wait() == 75, slow.out + slow.err
        assert "stopped after step" in slow.out
    again = run(*argv)
    begin = re.search(r"from step (\d+) of 30", again)
    assert begin is not None
    assert 5 <= int(begin[1]) < 30
    assert again.splitlines()[-1] == whole.splitlines()[-1]
