"""The collective payloads as real processes: 1, 2 and 3 ranks with Gloo over loopback.

Every rank is started the way srun starts a task, through the same entry and with Slurm's variables.
Faults are put in from outside, by replacing a function in one rank before it starts.
"""

import json
import math
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the collective payloads are torch programs")

from validation.payloads import all_reduce, pipeline, training  # noqa: E402 - after importorskip
from validation.payloads.errors import CannotRun  # noqa: E402 - after importorskip
from validation.payloads.group import _first_own_address, gpu_uuid, release  # noqa: E402

ROOT = Path(__file__).parents[2]

ALL_REDUCE = {
    "backend": "gloo",
    "timeout_s": 30,
    "sizes_bytes": [4, 65536, 4194304],
    "iterations": 3,
    "warmup": 1,
}
TRAINING = {"backend": "gloo", "timeout_s": 30, "seed": 7, "steps": 4, "width": 16, "lr": 0.05}
DDP = {**TRAINING, "batch_per_rank": 4, "depth": 2}
PIPELINE = {**TRAINING, "microbatches": 4, "microbatch_size": 2, "layers_per_stage": 2}

# Rounding of float32 in a handful of steps; a fault shows at 1e-3 and above.
TOLERANCE = 1e-6


def run_ranks(payload, config, ranks, faults=None, environ=None, tasks=None):
    """Starts the ranks together; returns (exit code, standard output, standard error) of each.

    faults   rank -> Python statements run before the payload
    tasks    what SLURM_NTASKS says, when it is not the truth
    """
    job = free_job_id()
    processes = []
    for rank in range(ranks):
        fault = (faults or {}).get(rank, "")
        script = f"import sys\n{fault}\nfrom validation.payloads.__main__ import end, main\n"
        variables = {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank),
            "SLURM_NTASKS": str(tasks or ranks),
            "SLURM_JOB_ID": str(job),
            "SLURM_STEP_NODELIST": "localhost",
            "SLURMD_NODENAME": f"gpu{rank + 1}",
            **(environ or {}),
        }
        processes.append(
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    script + "end(main(sys.argv[1:]))",
                    payload,
                    json.dumps(config),
                ],
                cwd=ROOT,
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        outputs = [process.communicate(timeout=90) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        (process.returncode, out, err)
        for process, (out, err) in zip(processes, outputs, strict=True)
    ]


def free_job_id():
    """A job id whose port no one listens on."""
    while True:
        job = random.randrange(20_000)
        with socket.socket() as attempt:
            try:
                attempt.bind(("127.0.0.1", 20_000 + job))
            except OSError:
                continue
        return job


def document_of(results):
    """The one document of a run in which all ranks succeeded."""
    assert [code for code, _, _ in results] == [0] * len(results), results
    (first, *others) = [out for _, out, _ in results]
    assert others == [""] * len(others)
    (line,) = first.splitlines()
    return json.loads(line, parse_constant=pytest.fail)


def sentence_of(stderr):
    """The line for the operator: the last one, and the only one that begins like this."""
    (line,) = [line for line in stderr.splitlines() if line.startswith("plumbline: ")]
    assert stderr.rstrip().endswith(line)
    return line


# --- all_reduce ------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_reduce_sums_right_and_proves_who_took_part(ranks):
    # Libraries that print, from Python and from below it, must not break the document.
    noise = "import os; print('noise'); os.system('echo noise')"
    chatter = (
        "from validation.payloads import all_reduce\n"
        "reduce = all_reduce.reduce\n"
        f"def noisy(buffer): {noise}; reduce(buffer)\n"
        "all_reduce.reduce = noisy"
    )
    found = document_of(run_ranks("all_reduce", ALL_REDUCE, ranks, faults={0: chatter}))

    assert found["payload"] == "all_reduce"
    proof = found["proof"]
    assert (proof["world_size"], proof["backend"], proof["nccl"]) == (ranks, "gloo", None)
    assert proof["torch"] == str(torch.__version__)
    assert [rank["rank"] for rank in proof["ranks"]] == list(range(ranks))
    assert [rank["host"] for rank in proof["ranks"]] == [f"gpu{i + 1}" for i in range(ranks)]
    assert {rank["device"] for rank in proof["ranks"]} == {"cpu"}

    sizes = found["measured"]["sizes"]
    assert [size["bytes"] for size in sizes] == ALL_REDUCE["sizes_bytes"]
    for size in sizes:
        assert size["wrong"] == 0
        assert size["elements"] * 4 == size["bytes"]
        assert 0 < size["time_s_min"] <= size["time_s_median"] <= size["time_s_max"]
        assert size["algbw_gbs"] == pytest.approx(size["bytes"] / size["time_s_median"] / 1e9)
        assert size["busbw_gbs"] == pytest.approx(size["algbw_gbs"] * 2 * (ranks - 1) / ranks)


def test_one_wrong_element_in_the_last_timed_call_of_one_rank_is_counted():
    fault = (
        "from validation.payloads import all_reduce\n"
        "reduce, calls = all_reduce.reduce, []\n"
        "def corrupt(buffer):\n"
        "    reduce(buffer); calls.append(0)\n"
        "    if len(calls) == 1 + 3: buffer[12345] += 1\n"
        "all_reduce.reduce = corrupt"
    )
    config = {**ALL_REDUCE, "sizes_bytes": [65536]}
    found = document_of(run_ranks("all_reduce", config, 2, faults={1: fault}))
    assert found["measured"]["sizes"][0]["wrong"] == 1


def reduced(ranks, elements):
    """What all_reduce would leave when these ranks contribute, and the tile of the true sum."""
    tiles = [all_reduce._tiles(all_reduce.pattern(r, 4), torch.device("cpu")) for r in range(4)]
    total = torch.zeros(elements)
    for rank in ranks:
        part = torch.empty(elements)
        all_reduce.fill(part, tiles[rank][0])
        total += part
    return total, tiles[0][1]


def test_every_element_is_checked_also_beyond_one_tile():
    elements = all_reduce.TILE_PERIODS * 8191 + 100
    total, tile = reduced([0, 1, 2, 3], elements)
    assert all_reduce.count_wrong(total, tile) == 0
    total[elements - 1] = math.nan
    total[0] += 1
    assert all_reduce.count_wrong(total, tile) == 2


@pytest.mark.parametrize("ranks", [[0, 1, 2], [0, 1, 2, 2], [1, 1, 2, 3], [0, 1, 2, 3, 3], []])
def test_a_missing_or_doubled_rank_spoils_every_element(ranks):
    total, tile = reduced(ranks, 10_000)
    assert all_reduce.count_wrong(total, tile) == 10_000


def test_elements_in_the_wrong_place_are_seen():
    total, tile = reduced([0, 1, 2, 3], 2**16)
    for block in (1, 2**10, 2**15):
        assert all_reduce.count_wrong(total.roll(block), tile) > 2**15


@pytest.mark.parametrize("ranks", [1, 2, 1000, 2000, 5000])
def test_sums_stay_within_what_float32_holds_exactly(ranks):
    rule = all_reduce.pattern(ranks - 1, ranks)
    assert rule.total(rule.prime - 1) <= 2**24
    for element in (0, rule.prime - 1, 12_345):
        contributions = (all_reduce.pattern(r, ranks).contribution(element) for r in range(ranks))
        assert rule.total(element) == sum(contributions)


def test_too_many_ranks_for_float32_are_refused():
    with pytest.raises(CannotRun, match="exactly"):
        all_reduce.pattern(0, 10_000)


# --- ddp -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3])
def test_ddp_follows_its_reference(ranks):
    measured = document_of(run_ranks("ddp", DDP, ranks))["measured"]
    assert measured["steps"] == len(measured["losses"]) == DDP["steps"]
    assert measured["losses"] == pytest.approx(measured["reference_losses"], abs=TOLERANCE)
    assert measured["max_loss_difference"] < TOLERANCE
    assert measured["max_parameter_difference"] < TOLERANCE
    assert measured["parameters"] == 3 * (16 * 16 + 16)
    assert measured["samples_per_s"] == pytest.approx(4 * ranks / measured["step_time_s_median"])


def test_ddp_that_does_not_average_gradients_drifts_from_its_reference():
    fault = "import torch.nn.parallel as p; p.DistributedDataParallel = lambda m, device_ids: m"
    measured = document_of(run_ranks("ddp", DDP, 2, faults={0: fault, 1: fault}))["measured"]
    assert measured["max_parameter_difference"] > 1000 * TOLERANCE


def test_a_replica_that_drifted_on_another_rank_is_found():
    fault = (
        "import torch\nfrom validation.payloads import ddp\n"
        "train = ddp._train_replica\n"
        "def drift(config, group, model):\n"
        "    found = train(config, group, model)\n"
        "    torch.nn.init.zeros_(model[0].weight[:1].detach())\n"
        "    return found\n"
        "ddp._train_replica = drift"
    )
    measured = document_of(run_ranks("ddp", DDP, 2, faults={1: fault}))["measured"]
    assert measured["max_loss_difference"] < TOLERANCE
    assert measured["max_parameter_difference"] > 1000 * TOLERANCE


NOT_A_NUMBER = """
from validation.payloads import training
batches = training.batches
def spoiled(config, samples):
    for step, (inputs, targets) in enumerate(batches(config, samples)):
        if step == 2: inputs[-1, 0] = float("nan")
        yield inputs, targets
training.batches = spoiled
"""


@pytest.mark.parametrize(("payload", "config"), [("ddp", DDP), ("pipeline", PIPELINE)])
def test_nan_in_the_data_surfaces_and_is_no_error(payload, config):
    # spoiled on both ranks, so that training and reference agree on nan and only its name can tell
    faults = {0: NOT_A_NUMBER, 1: NOT_A_NUMBER}
    measured = document_of(run_ranks(payload, config, 2, faults=faults))["measured"]
    assert measured["losses"][2:] == ["nan", "nan"]
    assert measured["max_loss_difference"] == "nan"
    assert measured["max_parameter_difference"] == "nan"


@pytest.mark.parametrize("values", [[math.nan, 1.0], [1.0, math.nan], [math.nan], [1, math.nan, 2]])
def test_the_worst_of_values_with_nan_is_nan(values):
    assert math.isnan(training.worst(values))
    assert math.isnan(training.difference(values, [0.0] * len(values)))


def test_the_worst_of_numbers_is_the_largest():
    assert training.worst([1.0, 3.0, 2.0]) == 3.0
    assert training.difference([1.0, 5.0], [1.5, 3.0]) == 2.0
    assert math.isnan(training.difference([math.inf], [math.inf]))


# --- pipeline --------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_pipeline_follows_its_reference(ranks):
    measured = document_of(run_ranks("pipeline", PIPELINE, ranks))["measured"]
    assert measured["losses"] == pytest.approx(measured["reference_losses"], abs=TOLERANCE)
    assert measured["max_loss_difference"] < TOLERANCE
    assert measured["max_parameter_difference"] < TOLERANCE
    assert (measured["stages"], measured["microbatches"]) == (ranks, 4)
    assert measured["bubble_fraction_ideal"] == pytest.approx((ranks - 1) / (4 + ranks - 1))
    assert measured["parameters"] == ranks * 2 * (16 * 16 + 16)
    assert len(measured["losses"]) == PIPELINE["steps"]


def test_the_pipeline_works_with_held_sends_too():
    older = "from validation.payloads import held_sends; held_sends.MENDED = (99, 0, 0)"
    faults = dict.fromkeys(range(3), older)
    measured = document_of(run_ranks("pipeline", PIPELINE, 3, faults=faults))["measured"]
    assert measured["max_parameter_difference"] < TOLERANCE


def test_a_stage_that_computes_wrongly_on_one_rank_is_found():
    fault = (
        "from validation.payloads import pipeline\n"
        "make_stage = pipeline.make_stage\n"
        "def wrong(config, group, module):\n"
        "    module.register_forward_hook(lambda m, i, output: output * 1.01)\n"
        "    return make_stage(config, group, module)\n"
        "pipeline.make_stage = wrong"
    )
    measured = document_of(run_ranks("pipeline", PIPELINE, 2, faults={1: fault}))["measured"]
    assert measured["max_loss_difference"] > 100 * TOLERANCE
    assert measured["max_parameter_difference"] > 10 * TOLERANCE


def test_fewer_microbatches_than_stages_are_refused():
    results = run_ranks("pipeline", {**PIPELINE, "microbatches": 1}, 2)
    for code, out, err in results:
        assert (code, out) == (1, "")
        assert "microbatches is 1, fewer than the 2 stages" in sentence_of(err)


def test_the_ideal_bubble_is_empty_for_one_stage_and_shrinks_with_microbatches():
    assert pipeline.bubble_fraction(1, 8) == 0
    assert pipeline.bubble_fraction(4, 4) == pytest.approx(3 / 7)
    assert pipeline.bubble_fraction(4, 32) == pytest.approx(3 / 35)


# --- what cannot run -------------------------------------------------------------------------


def test_nccl_without_a_gpu_is_an_error_and_never_gloo():
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    ((code, out, err),) = run_ranks("ddp", {**DDP, "backend": "nccl"}, 1, environ=hidden)
    assert (code, out) == (1, "")
    assert "the backend is nccl, but" in sentence_of(err)


def test_a_rank_that_never_comes_is_an_error_within_the_timeout():
    ((code, out, err),) = run_ranks("all_reduce", {**ALL_REDUCE, "timeout_s": 2}, 1, tasks=2)
    assert (code, out) == (1, "")
    assert "the 2 ranks did not meet at localhost:" in sentence_of(err)


def test_a_host_name_on_loopback_is_refused_between_nodes():
    # the name must not lead to the world by accident: only the kind of the answer is decided here
    loopback = (
        "from validation.payloads import group\n"
        "group._first_own_address = lambda hostname: '127.0.1.1'"
    )
    two_nodes = {"SLURM_STEP_NODELIST": "localhost,127.0.0.1", "GLOO_SOCKET_IFNAME": ""}
    ((code, out, err),) = run_ranks(
        "all_reduce", ALL_REDUCE, 1, faults={0: loopback}, environ=two_nodes, tasks=2
    )
    assert (code, out) == (1, "")
    assert "leads to 127.0.1.1, where other nodes cannot reach Gloo" in sentence_of(err)


def test_the_own_address_is_the_first_that_can_be_bound():
    assert _first_own_address("localhost") in ("127.0.0.1", "::1")
    assert _first_own_address("192.0.2.1") is None  # documentation addresses are nobody's
    assert _first_own_address("name.invalid") is None


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.6.0+debian", (2, 6, 0)), ("2.13.0+cpu", (2, 13, 0)), ("2.10.1a0+git1", (2, 10, 1))],
)
def test_a_torch_version_is_read_without_its_build(version, numbers):
    assert release(version) == numbers


def test_a_mig_instance_keeps_its_own_uuid():
    assert gpu_uuid("1111-22", None, 0) == "GPU-1111-22"
    assert gpu_uuid("GPU-1111-22", "0,1", 0) == "GPU-1111-22"
    assert gpu_uuid("1111-22", "MIG-33,MIG-44", 1) == "MIG-44"
