"""The programs of the examples, with processes on this machine in place of GPUs.

Each proves its own result, and each proof is broken here. What molecule/default has users submit on
nodes (test_6_examples.py) is run whole by --full alone, with this Python's torch, which is newer.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import until
from validation.checks.scaling import STRONG, WEAK, Size
from validation.tests.torch_processes import Order, started

pytest.importorskip("torch", reason="scripts/setup --with-torch")

EXAMPLES = Path(__file__).resolve().parents[1] / "files/examples"
# One thread for each process, as across.sh says. What breaks a program stands before it.
PROGRAM = """
import os, runpy, sys, torch
torch.set_num_threads(1)
exec(os.environ.pop("BROKEN", ""))
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


def outcomes(*argv: str, broken: str = "") -> list[tuple[int, str, str]]:
    """Of two processes, as torchrun starts them: status, output and errors of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "BROKEN": broken}
    orders = [order(*argv, RANK=str(n), LOCAL_RANK=str(n), **world) for n in range(2)]
    with started(orders) as processes:
        return [(process.wait(), process.out, process.err) for process in processes]


def run_together(*argv: str) -> str:
    results = outcomes(*argv)
    assert [code for code, _, _ in results] == [0, 0], results
    return "".join(out for _, out, _ in results)


def losses(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"loss ([0-9.]+)", output)]


@on_nodes_too
@pytest.mark.parametrize("program", ["ddp", "tensor_parallel", "pipeline_parallel"])
def test_two_processes_learn(program):
    output = run_together(f"{program}.py")
    assert "2 processes, gloo" in output
    assert "gradients equal those of one process" in output
    first, *_, last = losses(output)
    assert last < first / 2


@on_nodes_too
def test_each_stage_of_sharding_holds_less_and_learns_the_same():
    rows = re.findall(r"^(ddp|zero-\d) +\d +(.*)$", run_together("sharding.py"), re.MULTILINE)
    figures = {way: [float(number) for number in row.split()] for way, row in rows}
    assert list(figures) == ["ddp", "zero-1", "zero-2", "zero-3"]
    assert [row[3] for row in figures.values()] == pytest.approx([4.29, 3.22, 2.68, 2.14], rel=0.1)
    assert len({row[4] for row in figures.values()}) == 1


@on_nodes_too
def test_several_processes_answer_as_one():
    output = run_together("inference.py")
    assert len(re.findall("prompts at a time: [1-9][0-9]* tokens/s", output)) == 4
    assert "the answers equal those of one GPU; 100% of their words are right" in output


ALONE = "torch.nn.parallel.DistributedDataParallel = lambda model, **options: model"
LAZY = "torch.optim.AdamW.step = lambda self, closure=None: None"
UNEVEN = """
step = torch.optim.AdamW.step
def uneven(self, closure=None):
    for group in self.param_groups:
        group["lr"] = 3e-3 + 1e-4 * int(os.environ["RANK"])
    step(self)
torch.optim.AdamW.step = uneven
"""
ADDED_UP = """
import torch.distributed.fsdp as fsdp
shard = fsdp.fully_shard
def added_up(part, **options):
    sharded = shard(part, **options)
    sharded.set_force_sum_reduction_for_comms(True)
    sharded.set_gradient_divide_factor(1.0)
fsdp.fully_shard = added_up
"""
NOT_SPREAD = """
import torch.distributed.optim
class NotSpread(torch.optim.AdamW):
    def __init__(self, parameters, kind, lr):
        super().__init__(parameters, lr=lr)
        self.optim = self
torch.distributed.optim.ZeroRedundancyOptimizer = NotSpread
"""
CUT_WRONG = """
import torch.distributed.tensor.parallel as parallel
cut = parallel.parallelize_module
def wrong(block, *rest):
    cut(block, *rest)
    block.between.bias.data.add_(9)
parallel.parallelize_module = wrong
"""
SUMMED = """
import functools
import torch.distributed.pipelining as pipelining
pipelining.Schedule1F1B = functools.partial(pipelining.Schedule1F1B, scale_grads=False)
"""
DIFFERENT = "gradients are .* off those of one process"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("program", "broken", "sentence"),
    [
        pytest.param("ddp", ALONE, DIFFERENT, id="ddp-alone"),
        pytest.param("ddp", LAZY, "loss did not fall", id="ddp-lazy", marks=on_nodes_too),
        pytest.param("ddp", UNEVEN, "ended with different models", id="ddp-uneven"),
        pytest.param("sharding", ADDED_UP, "zero-2 has other gradients", id="sharding-added-up"),
        pytest.param("sharding", NOT_SPREAD, "did not save memory", id="sharding-not-spread"),
        pytest.param("tensor_parallel", CUT_WRONG, DIFFERENT, id="tensor-cut-wrong"),
        pytest.param(
            "tensor_parallel", LAZY, "loss did not fall", id="tensor-lazy", marks=on_nodes_too
        ),
        pytest.param("pipeline_parallel", SUMMED, DIFFERENT, id="pipeline-summed"),
        pytest.param(
            "pipeline_parallel", LAZY, "loss did not fall", id="pipeline-lazy", marks=on_nodes_too
        ),
        pytest.param("inference", CUT_WRONG, "differs from that of one GPU", id="inference-cut"),
        pytest.param(
            "inference", LAZY, "are those that follow", id="inference-lazy", marks=on_nodes_too
        ),
    ],
)
def test_a_program_that_is_wrong_says_so(program, broken, sentence):
    results = outcomes(f"{program}.py", broken=broken)
    assert any(code == 1 for code, _, _ in results), results
    assert any(re.search(sentence, err) for _, _, err in results), results


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("argv", "broken", "sentence"),
    [
        (["one_gpu.py"], LAZY, "the loss did not fall"),
        (["profile_steps.py", "trace"], "", ""),
        (
            ["profile_steps.py", "trace"],
            "import json\njson.loads = lambda text: {'traceEvents': []}",
            "the trace has 0 times data",
        ),
    ],
    ids=["one-gpu-lazy", "profile", "profile-without-events"],
)
def test_a_single_program_proves_itself(tmp_path, argv, broken, sentence):
    argv = [str(tmp_path / word) if word == "trace" else word for word in argv]
    with started([order(*argv, BROKEN=broken)]) as (process,):
        assert process.wait() == bool(sentence), process.err
        assert sentence in process.err
        if not sentence:
            assert re.search(r"^backward +[0-9.]+$", process.out, re.MULTILINE)


@pytest.mark.long
def test_a_checkpoint_of_another_model_is_not_gone_on_with(tmp_path):
    run("checkpoint.py", str(tmp_path / "saved.pt"), "--steps", "10", "--every", "10")
    forgets = "torch.nn.Module.load_state_dict = lambda self, state: None"
    argv = ("checkpoint.py", str(tmp_path / "saved.pt"), "--steps", "10")
    with started([order(*argv, BROKEN=forgets)]) as (process,):
        assert process.wait() == 1
        assert "the model came back with another loss" in process.err


@on_nodes_too
def test_one_process_learns_and_knows_what_it_has_not_seen():
    output = run("one_gpu.py")
    assert float(output.rsplit(maxsplit=1)[-1]) > 0.9


@pytest.mark.parametrize(
    ("argv", "image"),
    [([], "/home/ada/pytorch.sqsh"), (["/images/mine.sqsh"], "/images/mine.sqsh")],
)
def test_the_job_with_a_container_mounts_the_course_and_takes_an_image(tmp_path, argv, image):
    """srun is a stand-in that prints its options; a real one with pyxis is not to be had here."""
    (tmp_path / "srun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": "/home/ada"}
    job = ["bash", str(EXAMPLES / "03-container.sbatch"), *argv]
    options = subprocess.check_output(job, text=True, env=environ, cwd=tmp_path).splitlines()
    assert options == [
        f"--container-image={image}",
        f"--container-mounts={tmp_path}:/work",
        "--container-workdir=/work",
        "python3",
        "one_gpu.py",
    ]


def scaling(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    result = folder / "result"
    runs = [
        (1, 1, 100, 8.0),
        (2, 1, 100, 5.0),
        (4, 2, 100, 4.0),
        (2, 1, 200, 10.0),
        (4, 2, 400, 16),
    ]
    names = ("ranks", "nodes", "pictures", "seconds")
    result.write_text(
        "".join(json.dumps(dict(zip(names, run, strict=True))) + "\n" for run in runs)
    )
    command = [sys.executable, str(EXAMPLES / "scaling.py"), str(result), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_scaling_is_against_one_rank_in_the_columns_of_the_validator(tmp_path):
    lines = [re.split(r"\s{2,}", line.strip()) for line in scaling(tmp_path).stdout.splitlines()]
    columns = ["ranks", "nodes", "pictures per second", WEAK, "speed-up", STRONG]
    assert lines == [
        columns,
        ["1", "1", "12.5", "1", "1", "1"],
        ["2", "1", "20", "0.8", "1.6", "0.8"],
        ["4", "2", "25", "0.5", "2", "0.5"],
    ]


def test_a_weak_efficiency_below_the_floor_is_an_error(tmp_path):
    assert scaling(tmp_path, "--floor", "0.5").returncode == 0
    low = scaling(tmp_path, "--floor", "0.51")
    assert low.returncode == 1
    assert "weak efficiency of all ranks is 0.5, at least 0.51 expected" in low.stderr


def test_the_validators_efficiencies_stand_beside_those_of_the_same_size(tmp_path):
    size = Size(4, 2, 1.0, None, None)
    metrics = [{"name": size.named(WEAK), "value": 0.9}, {"name": size.named(STRONG), "value": 0.7}]
    results = tmp_path / "results.jsonl"
    results.write_text(json.dumps({"check": "scaling", "metrics": metrics}) + "\n")
    *_, last = scaling(tmp_path, "--validator", str(results)).stdout.splitlines()
    assert last.split()[-2:] == ["0.9", "0.7"]
    results.write_text(json.dumps({"check": "ddp", "metrics": metrics}) + "\n")
    none = scaling(tmp_path, "--validator", str(results))
    assert none.returncode == 1
    assert "has no result of the check scaling" in none.stderr


@pytest.mark.long
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
