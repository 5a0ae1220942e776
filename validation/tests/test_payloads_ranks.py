"""The collective payloads as real processes: 1, 2 and 3 ranks with Gloo over loopback.

Every rank goes through the entry that srun starts, with Slurm's variables and with the shipped
suite's sizes, in a process that has torch already (torch_processes). Faults are put in from
outside, by replacing a function in one rank before it starts; those of trainings: fault_table.
"""

import json
import math
import os
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from validation import suites
from validation.checks.registry import ALONE
from validation.model import Verdict

torch = pytest.importorskip("torch", reason="the collective payloads are torch programs")

from cluster.errors import CannotRun  # noqa: E402 - importorskip
from validation.payloads import (  # noqa: E402 - importorskip
    all_reduce,
    chains,
    ddp,
    layers,
    meeting,
    pattern,
    pipeline,
    reference,
    training,
)
from validation.payloads.group import _first_own_address, gpu_uuid, release  # noqa: E402
from validation.tests import fault_table  # noqa: E402 - importorskip
from validation.tests.torch_processes import Order, Process, started  # noqa: E402

ROOT = Path(__file__).parents[2]
# As the payloads do. Two that wait for each other spin: the same takes four times as long.
torch.set_num_threads(1)


def of_suite(payload, suite="quick"):
    """What a suite gives a payload on nodes without GPUs."""
    config = {"backend": "gloo", **suites.load(suite).cluster[payload]["gloo"].config}
    return json.loads(json.dumps(config))


ALL_REDUCE, DDP, PIPELINE = map(of_suite, ("all_reduce", "ddp", "pipeline"))


# How long ranks stay after a complaint, where only one of them has something to say.
HASTE = "from validation.payloads import meeting, watch; meeting.LINGER_S = watch.LINGER_S = 5"


def variables_of(rank, ranks, job):
    """What Slurm tells a task of one node."""
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NTASKS": str(ranks),
        "SLURM_JOB_ID": str(job),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURMD_NODENAME": f"gpu{rank + 1}",
    }


def start_ranks(
    payload, config, ranks, faults=None, environ=None, tasks=None
) -> AbstractContextManager[list[Process]]:
    """Starts the ranks together, for the time of a `with` block.

    faults   rank -> Python statements run before the payload
    tasks    what SLURM_NTASKS says, when it is not the truth
    """
    job = fault_table.free_job_id()
    orders = []
    for rank in range(ranks):
        fault = (faults or {}).get(rank, "")
        script = (
            f"import sys\n{HASTE}\n{fault}\nfrom validation.payloads.__main__ import end, main\n"
            "end(main(sys.argv[1:]))"
        )
        variables = variables_of(rank, tasks or ranks, job) | (environ or {})
        arguments = (payload, json.dumps(config))
        orders.append(Order(script, arguments, os.environ | variables))
    return started(orders)


def run_ranks(*arguments, **options):
    """(exit code, standard output, standard error) of each."""
    with start_ranks(*arguments, **options) as processes:
        return [(process.wait(180), process.out, process.err) for process in processes]


def document_of(results):
    """The one document of a run in which all ranks succeeded."""
    assert [code for code, _, _ in results] == [0] * len(results), results
    (first, *others) = [out for _, out, _ in results]
    assert others == [""] * len(others)
    blank, line = first.split("\n", 1)
    assert (blank, line.count("\n")) == ("", 1)  # whatever was printed before it, it begins a line
    return json.loads(line, parse_constant=pytest.fail)


def complaint_of(stderr):
    """The line for the operator: the last one, and the only one of its kind; and who is blamed."""
    lines = [
        line.removeprefix("plumbline: ") for line in stderr.splitlines() if "plumbline: " in line
    ]
    blamed = [line.removeprefix("blamed ") for line in lines if line.startswith("blamed ")]
    (line,) = [line for line in lines if not line.startswith(("stage ", "blamed ", "nccl "))]
    assert stderr.rstrip().endswith(line)
    return line, blamed


def named_by_the_others(payload, config, ranks, frozen, fault):
    """What the other ranks say, who all name the frozen one."""
    complaints = []
    with start_ranks(payload, config, ranks, faults={frozen: fault}) as processes:
        for rank, process in enumerate(processes):
            if rank != frozen:
                assert process.wait(180) == 1
                complaints.append(complaint_of(process.err))
    for sentence, blamed in complaints:
        assert f"no sign of life from rank {frozen} on gpu{frozen + 1}" in sentence
        assert blamed == [f"gpu{frozen + 1}"]
    return [sentence for sentence, _ in complaints]


def refused(*arguments, **options):
    """What each rank complains of and whom it blames, where all of them end without an answer."""
    results = run_ranks(*arguments, **options)
    assert {(code, out) for code, out, _ in results} == {(1, "")}
    return [complaint_of(err) for _, _, err in results]


def reducing(body):
    """Python that does this in the place of all_reduce's own `reduce`."""
    return f"""
import os, signal, time
from validation.payloads import all_reduce, watch
reduce, calls = all_reduce.reduce, []
def instead(buffer):
    calls.append(0)
    {body}
all_reduce.reduce = instead
"""


# --- all_reduce ------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_reduce_sums_right_and_proves_who_took_part(ranks):
    # Libraries that print, from Python and from below it, must not break the document.
    chatter = reducing("print('noise'); os.system('echo noise'); reduce(buffer)")
    config = {**ALL_REDUCE, "nonce": "run-7f-all_reduce"}
    results = run_ranks("all_reduce", config, ranks, faults={0: chatter})
    document = document_of(results)

    assert (document["payload"], document["nonce"]) == ("all_reduce", "run-7f-all_reduce")
    proof = document["proof"]
    assert (proof["world_size"], proof["backend"], proof["nccl"]) == (ranks, "gloo", None)
    assert proof["torch"] == str(torch.__version__)
    assert [rank["rank"] for rank in proof["ranks"]] == list(range(ranks))
    assert [rank["host"] for rank in proof["ranks"]] == [f"gpu{i + 1}" for i in range(ranks)]
    assert {rank["device"] for rank in proof["ranks"]} == {"cpu"}

    sizes = document["measured"]["sizes"]
    assert [size["bytes"] for size in sizes] == ALL_REDUCE["sizes_bytes"]
    for size in sizes:
        assert size["wrong_by_rank"] == [0] * ranks
        assert size["calls_checked"] == ALL_REDUCE["warmup"] + ALL_REDUCE["iterations"]
        assert (size["elements"] * 4, size["dtype"]) == (size["bytes"], "float32")
        assert 0 < size["time_s_min"] <= size["time_s_median"] <= size["time_s_max"]
        assert size["algbw_gbs"] == pytest.approx(size["bytes"] / size["time_s_median"] / 1e9)
        assert size["busbw_gbs"] == pytest.approx(size["algbw_gbs"] * 2 * (ranks - 1) / ranks)

    for rank, (_, _, err) in enumerate(results):
        stages = [line for line in err.splitlines() if line.startswith("plumbline: stage ")]
        assert stages == [
            f"plumbline: stage {name} rank {rank} on gpu{rank + 1}"
            for name in ("joining", "connecting", "measuring", "done")
        ]


ONE_SIZE = {**ALL_REDUCE, "sizes_bytes": ALL_REDUCE["sizes_bytes"][:1]}
CALLS = ALL_REDUCE["warmup"] + ALL_REDUCE["iterations"]


def test_wrong_elements_in_any_call_are_counted_on_the_rank_that_has_them():
    fault = reducing("reduce(buffer); buffer[: 2 ** len(calls)] += 1")
    document = document_of(run_ranks("all_reduce", ONE_SIZE, 2, faults={1: fault}))
    each = sum(2**call for call in range(1, CALLS + 1))
    assert document["measured"]["sizes"][0]["wrong_by_rank"] == [0, each]


def test_a_call_counts_as_long_as_its_slowest_rank_takes():
    slow = reducing("reduce(buffer); time.sleep(0.2)")
    document = document_of(run_ranks("all_reduce", ONE_SIZE, 2, faults={1: slow}))
    assert document["measured"]["sizes"][0]["time_s_min"] >= 0.2


def reduced(ranks, elements):
    """What all_reduce leaves when these ranks of 4 contribute, and the tile of the true sum."""
    total = torch.zeros(elements)
    for rank in ranks:
        part = torch.empty(elements)
        mine = all_reduce.contribution(rank, rank + 1, 4)[0]
        all_reduce.fill(part, all_reduce.tile(mine, torch.device("cpu")))
        total += part
    return total, all_reduce.tile(all_reduce.total(4), torch.device("cpu"))


def test_every_element_is_checked_also_beyond_one_tile():
    elements = all_reduce.TILE_PERIODS * pattern.PERIOD + 100
    total, tile = reduced([0, 1, 2, 3], elements)
    assert all_reduce.count_wrong(total, tile) == 0
    total[elements - 1] = math.nan
    total[0] += 1
    assert all_reduce.count_wrong(total, tile) == 2


@pytest.mark.parametrize(
    "ranks",
    [
        [0, 1, 2],
        [0, 1, 2, 2],
        [1, 1, 2, 3],
        [0, 1, 2, 3, 3],
        [],
        # as many ranks, with the same sum of their numbers
        [0, 0, 3, 3],
        [1, 1, 2, 2],
        [0, 2, 2, 2],
        [1, 1, 1, 3],
    ],
)
def test_other_ranks_than_all_spoil_the_sum(ranks):
    total, tile = reduced(ranks, 10_000)
    assert all_reduce.count_wrong(total, tile) > 9_990  # by chance two sums may be equal


def test_elements_in_the_wrong_place_are_seen():
    total, tile = reduced([0, 1, 2, 3], 2**16)
    for block in (1, 2**10, 2**15):
        assert all_reduce.count_wrong(total.roll(block), tile) > 2**15


@pytest.mark.sample(2)
@pytest.mark.parametrize("ranks", [1, 2, 3, 1000, 5700, 10_000])
def test_sums_use_every_bit_that_float32_holds_exactly(ranks):
    total = all_reduce.total(ranks)
    size = total.abs()
    assert int(size.max()) <= 2**24
    assert int(size.min()) > 2**23
    for bit in range(23):
        assert 0.3 < float((size >> bit & 1).double().mean()) < 0.7 or ranks > 1000
    assert 0.4 < float((total > 0).double().mean()) < 0.6
    assert torch.equal(total.float().long(), total)
    few = [all_reduce.contribution(r, r + 1, ranks)[0] for r in range(min(ranks, 3))]
    assert torch.equal(torch.stack(few), all_reduce.contribution(0, len(few), ranks))
    assert {int(torch.sign(part[7])) for part in few} == {int(torch.sign(total[7]))}


def test_too_many_ranks_for_float32_are_refused():
    with pytest.raises(CannotRun, match="exactly"):
        all_reduce.contribution(0, 1, 5_000_000)


# --- ddp and pipeline -------------------------------------------------------------------------


def test_the_formula_is_what_torch_trains():
    """In a process of its own: torch.optim cannot be imported where Ansible has been."""
    code = f"from {__name__} import hold_the_formula_against_autograd as hold; hold()"
    with started([Order(code)]) as (process,):
        assert process.wait(180) == 0, process.err


def hold_the_formula_against_autograd():
    """The reference against autograd in float64, which it does not use."""
    config = ddp.Config(**DDP)
    values = reference.initial(config.seed, config.width, config.depth)
    scale = reference.layer_scale(config.depth)
    weights = torch.linspace(0.5, 1.5, config.batch_per_rank, dtype=torch.float64)
    weights /= config.batch_per_rank * config.width
    data = training.batches(config, config.batch_per_rank)
    expected = reference.train(values, reference.of_layers(scale), data, weights, config.lr)
    model = layers.stack(values, scale).double()
    optimizer = training.sgd(model, config.lr)
    for step, (inputs, targets) in enumerate(training.batches(config, config.batch_per_rank)):
        optimizer.zero_grad()
        losses = layers.squared_distances(model(inputs.double()), targets.double())
        loss = weights @ losses
        torch.autograd.backward(loss)
        if step == 0:
            assert reference.difference(training.gradients(model), expected.first.gradients) < 1e-10
        optimizer.step()
        assert loss.item() == pytest.approx(expected.losses[step], rel=1e-9)
        after = expected.parameters[step + 1]
        assert reference.difference(model.parameters(), after, expected.parameters[0]) < 1e-9


@pytest.mark.parametrize("ranks", [2, 3])
def test_ddp_follows_its_reference(ranks):
    measured = document_of(run_ranks("ddp", DDP, ranks))["measured"]
    assert measured["steps"] == DDP["steps"]
    (curve,) = measured["curves"]
    assert (curve["ranks"], len(curve["steps"])) == (ranks, DDP["steps"])
    for step in curve["steps"]:
        assert step["loss"] == pytest.approx(step["reference"], rel=1e-5)
    assert [row["rank"] for row in measured["ranks"]] == list(range(ranks))
    for row in measured["ranks"]:
        assert set(row["first_step"]) == {"computed", "exchanged"}
        assert max(row["first_step"].values()) < 1e-6
        assert len(row["steps"]) == DDP["steps"]
        assert max(step["parameters"] for step in row["steps"]) < 1e-5
        assert row["movement"] > 0.01
    assert measured["parameters"] == DDP["depth"] * (64 * 64 + 64)
    assert measured["samples_per_s"] == pytest.approx(8 * ranks / measured["step_time_s_median"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_pipeline_follows_its_reference(ranks):
    measured = document_of(run_ranks("pipeline", PIPELINE, ranks))["measured"]
    (curve,) = measured["curves"]
    assert curve["ranks"] == ranks
    for step in curve["steps"]:
        assert step["loss"] == pytest.approx(step["reference"], rel=1e-5)
    for row in measured["ranks"]:
        assert set(row["first_step"]) == {"received", "computed", "exchanged"}
        assert max(row["first_step"].values()) < 1e-6
        assert max(step["parameters"] for step in row["steps"]) < 1e-5
    microbatches = PIPELINE["microbatches"]
    assert measured["microbatches"] == microbatches
    assert measured["bubble_fraction_ideal"] == pytest.approx(
        (ranks - 1) / (microbatches + ranks - 1)
    )
    assert measured["parameters"] == ranks * PIPELINE["layers_per_stage"] * (64 * 64 + 64)


def test_more_ranks_than_a_chain_has_stages_make_several_chains():
    short = "from validation.payloads import pipeline; pipeline.LONGEST_CHAIN = 2"
    faults = dict.fromkeys(range(3), short)
    measured = document_of(run_ranks("pipeline", PIPELINE, 3, faults=faults))["measured"]
    assert [curve["ranks"] for curve in measured["curves"]] == [2, 1]
    for row in measured["ranks"]:
        assert max(step["parameters"] for step in row["steps"]) < 1e-5


def test_chains_are_even_and_short():
    assert chains.chains(1, 16) == [range(1)]
    assert chains.chains(16, 16) == [range(16)]
    assert chains.chains(17, 16) == [range(9), range(9, 17)]
    for ranks in (33, 100, 4096, 5000):
        found = chains.chains(ranks, 16)
        assert [rank for chain in found for rank in chain] == list(range(ranks))
        assert {len(chain) for chain in found} <= {16, 15, 14, 13, 12, 11}


@pytest.mark.parametrize("ranks", [2, 16, 500])
def test_the_reference_of_a_rank_costs_no_more_with_more_ranks(ranks):
    """Samples and layers of the reference, whatever the number of ranks."""
    assert len(ddp.shares(ranks)) <= 8
    assert max(map(len, chains.chains(ranks, pipeline.LONGEST_CHAIN))) <= 16
    assert sum(ddp.shares(ranks)) == pytest.approx(sum(map(ddp.weight, range(ranks))) / ranks)
    assert len({round(ddp.weight(rank), 6) for rank in range(ranks)}) == ranks


@pytest.mark.heavy("trains once for each fault of docs/understand/faults.md")
def test_every_fault_shows_and_every_healthy_run_passes():
    """docs/understand/faults.md for 2 ranks, at the sizes of every suite and backend."""
    cases = fault_table.run(2, ("ddp", "pipeline"), ("gloo", "nccl"))
    assert [item for item in cases if not item.right] == []
    for item in cases:
        blamed = item.result.blamed
        if item.fault.of_one_node:
            assert blamed == ("gpu2",), item
        elif item.fault.name != fault_table.HEALTHY:
            assert blamed in (None, ("gpu1", "gpu2")), item


def test_a_rank_alone_shows_its_faults_too():
    cases = fault_table.run(1, ("ddp", "pipeline"), ("gloo",))
    assert [item for item in cases if not item.right] == []
    for item in cases:
        if item.fault.name == fault_table.HEALTHY:
            assert item.result.message == ALONE
        else:
            assert item.result.blamed == ("gpu1",), item


def test_steps_that_take_far_too_long_fail():
    """By the ranks' clocks: nobody waits for it."""
    slow = (
        "from validation.payloads import group\nclock = group.Group.clock\n"
        "group.Group.clock = lambda self: 1e5 * clock(self)"
    )
    measured = document_of(run_ranks("ddp", DDP, 2, faults={0: slow, 1: slow}))["measured"]
    result = fault_table.judged("ddp", "gloo", 2, fault_table.HEALTHY, measured).result
    assert result.verdict is Verdict.FAIL
    assert result.message.startswith("step time / reference's is")


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
    (curve,) = measured["curves"]
    assert [step["loss"] for step in curve["steps"]][2:] == ["nan"] * 3
    assert measured["ranks"][0]["steps"][2] == {"parameters": "nan"}


@pytest.mark.parametrize("values", [[math.nan, 1.0], [1.0, math.nan], [math.nan], [1, math.nan, 2]])
def test_the_worst_of_values_with_nan_is_nan(values):
    assert math.isnan(reference.worst(values))


def test_differences_are_relative_to_what_should_have_moved():
    start, moved = torch.zeros(4), torch.ones(4)
    assert reference.difference([moved], [moved], [start]) == 0
    assert reference.difference([start], [moved], [start]) == 1
    assert reference.difference([moved, start], [moved, moved], [start, start]) == 1
    assert reference.difference([moved], [start], [start]) == math.inf
    assert reference.movement([moved * 3], [moved]) == 2
    assert reference.worst([1.0, 3.0, 2.0]) == 3.0


def test_the_movement_is_that_of_all_steps():
    kept = [[torch.full((4,), value)] for value in (1.0, 1.5, 3.0)]
    row = training.figures(0, first_step={}, parameters=kept[1:], reference=kept)
    assert row.movement == 2


def test_the_pipeline_works_with_held_sends_too():
    older = "from validation.payloads import held_sends; held_sends.MENDED = (99, 0, 0)"
    faults = dict.fromkeys(range(3), older)
    measured = document_of(run_ranks("pipeline", PIPELINE, 3, faults=faults))["measured"]
    assert max(row["first_step"]["exchanged"] for row in measured["ranks"]) < 1e-6


def test_fewer_microbatches_than_stages_are_refused():
    for sentence, _ in refused("pipeline", {**PIPELINE, "microbatches": 1}, 2):
        assert "microbatches is 1, fewer than the 2 stages" in sentence


def test_the_ideal_bubble_is_empty_for_one_stage_and_shrinks_with_microbatches():
    assert pipeline.bubble_fraction(1, 8) == 0
    assert pipeline.bubble_fraction(4, 4) == pytest.approx(3 / 7)
    assert pipeline.bubble_fraction(4, 32) == pytest.approx(3 / 35)


@pytest.mark.long
def test_a_program_of_its_own_finds_all_that_it_needs():
    """As srun starts it: with nothing loaded before, and with what it says at its very end."""
    variables = variables_of(0, 1, fault_table.free_job_id())
    done = subprocess.run(
        [sys.executable, "-m", "validation.payloads", "ddp", json.dumps(DDP)],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    document = document_of([(done.returncode, done.stdout, done.stderr)])
    assert len(document["measured"]["curves"]) == 1
    assert done.stderr.splitlines()[-1] == "plumbline: stage done rank 0 on gpu1"


# --- what cannot run -------------------------------------------------------------------------


def test_nccl_without_a_gpu_is_an_error_and_never_gloo():
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    ((sentence, _),) = refused("ddp", {**DDP, "backend": "nccl"}, 1, environ=hidden)
    assert "the backend is nccl, but" in sentence


def test_ranks_that_never_come_are_named_with_their_nodes():
    nodes = {"SLURM_STEP_NODELIST": "localhost,gpu2", "GLOO_SOCKET_IFNAME": "lo"}
    here = {**nodes, "SLURMD_NODENAME": "localhost"}
    config = {**ALL_REDUCE, "join_timeout_s": 2}
    ((sentence, blamed),) = refused("all_reduce", config, 1, tasks=2, environ=here)
    assert "1 of 2 ranks did not come within 2 s: rank 1, of gpu2" in sentence
    assert blamed == ["gpu2"]


def test_all_ranks_tell_the_same_of_one_that_never_comes():
    complaints = refused("all_reduce", {**ALL_REDUCE, "join_timeout_s": 4}, 2, tasks=3)
    assert len({sentence.partition(": ")[2] for sentence, _ in complaints}) == 1
    assert "1 of 3 ranks did not come within 4 s: rank 2" in complaints[1][0]


def test_a_missing_rank_0_is_told_too():
    config = {**ALL_REDUCE, "join_timeout_s": 2}
    environ = {"SLURM_PROCID": "1"}
    ((sentence, blamed),) = refused("all_reduce", config, 1, tasks=2, environ=environ)
    assert "rank 0 does not answer at localhost:" in sentence
    assert blamed == ["localhost"]


def test_no_rank_gives_up_long_after_the_time_limit(monkeypatch):
    """One that paused for half a minute more was taken for one that never came: a cut link."""
    attempts: list[float] = []

    def no_way(rendezvous, timeout_s, serve):
        attempts.append(timeout_s)
        raise RuntimeError("No route to host")

    def given_up(timeout_s):
        attempts.clear()
        with pytest.raises(RuntimeError, match="No route to host"):
            meeting.connect(nowhere, timeout_s)
        return attempts

    nowhere: Any = None
    monkeypatch.setattr(meeting, "_store", no_way)
    monkeypatch.setattr(meeting, "time", SimpleNamespace(monotonic=lambda: sum(attempts)))
    assert given_up(12) == [5, 5, 5]  # so long each of them took
    assert given_up(0.3) == [0.3, 0.3]
    # torch doubles its pauses within an attempt: with this one the last ends before others leave.
    assert 2 * meeting.ATTEMPT_S <= meeting.LINGER_S


@pytest.mark.sample(1)
@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_rank_is_named_by_the_others(frozen):
    """It stops in its third call; nobody else knows more than that somebody does not answer."""
    fault = reducing("len(calls) == 3 and os.kill(os.getpid(), signal.SIGSTOP); reduce(buffer)")
    config = {**ALL_REDUCE, "timeout_s": 4}
    for sentence in named_by_the_others("all_reduce", config, 3, frozen, fault):
        assert "no progress for 4 s (while timing 65536 bytes)" in sentence


def test_behind_a_cut_link_each_side_names_the_other():
    """From one side alone it looks like a frozen rank, so both stay until both have been heard."""
    cut = "def unreachable(*_): raise RuntimeError('no route to host')\n" + reducing("""
    if len(calls) == 3:
        watch.Watch._beat = unreachable
        watch.Watch._silent_ranks = lambda self, problem: time.sleep(8) or [0]
        time.sleep(1000)
    reduce(buffer)""")
    shipped = "from validation.payloads import watch; watch.LINGER_S = watch.ANSWER_S + 5"
    config = {**ALL_REDUCE, "timeout_s": 4}
    until = time.monotonic() + 180
    with start_ranks("all_reduce", config, 2, faults={0: shipped, 1: cut}) as processes:
        while all(process.status is None for process in processes) and time.monotonic() < until:
            time.sleep(0.1)
        outputs = [process.err for process in processes]  # when the first of them ended
    blamed = {
        rank: [line.split()[-1] for line in output.splitlines() if " blamed " in line]
        for rank, output in enumerate(outputs)
    }
    assert blamed == {0: ["gpu2"], 1: ["gpu1"]}


def test_a_rank_that_dies_is_named_by_the_others():
    fault = (
        "import os\nfrom validation.payloads import ddp\n"
        "ddp.train_reference = lambda *_: os._exit(9)"
    )
    warned = (
        "from validation.payloads import nccl_debug\nnccl_debug.complaint = lambda _: 'a cable'"
    )
    results = run_ranks("ddp", DDP, 3, faults={0: warned, 2: fault})
    assert [code for code, _, _ in results] == [1, 1, 9]
    for _, _, err in results[:2]:
        sentence, blamed = complaint_of(err)
        assert "no sign of life from rank 2 on gpu3" in sentence
        assert blamed == ["gpu3"]
    assert "on gpu3: NCCL: a cable; " in results[0][2]


def test_what_goes_wrong_before_others_are_asked_is_the_nodes_own():
    broken = "import sys; sys.modules['torch'] = None"
    config = {**ALL_REDUCE, "join_timeout_s": 2}
    ((sentence, blamed),) = refused("all_reduce", config, 1, faults={0: broken}, tasks=2)
    assert "torch cannot be imported" in sentence
    assert blamed == ["gpu1"]


def test_fewer_cpus_than_asked_for_are_refused():
    one_cpu = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"
    here = {"SLURMD_NODENAME": "gpu1"}  # both on one node, which they share
    config = {**ALL_REDUCE, "cpus_per_rank": 1}
    faults = {0: one_cpu, 1: one_cpu}
    for sentence, blamed in refused("all_reduce", config, 2, faults=faults, environ=here):
        assert "2 ranks on gpu1 may use 1 CPUs together, 1 for each were asked for" in sentence
        assert blamed == ["gpu1"]


def test_no_rank_leaves_before_all_are_done():
    """Rank 0 serves the others; it may not go while one of them still has something to say."""
    slow = (
        "import time\nfrom validation.payloads import group\n"
        "slowest = group.Group.proof\n"
        "def late(self):\n"
        "    found = slowest(self); time.sleep(3); return found\n"
        "group.Group.proof = late"
    )
    ended: dict[int, float] = {}
    until = time.monotonic() + 180
    with start_ranks("all_reduce", ONE_SIZE, 2, faults={1: slow}) as processes:
        while len(ended) < len(processes) and time.monotonic() < until:
            time.sleep(0.05)
            for rank, process in enumerate(processes):
                if process.status is not None:
                    ended.setdefault(rank, time.monotonic())
        document_of([(process.wait(1), process.out, process.err) for process in processes])
    assert abs(ended[0] - ended[1]) < 2.5


def test_a_host_name_on_loopback_is_refused_between_nodes():
    # the name must not lead to the world by accident: only the kind of the answer is decided here
    loopback = (
        "from validation.payloads import group\n"
        "group._first_own_address = lambda hostname: '127.0.1.1'"
    )
    two_nodes = {"SLURM_STEP_NODELIST": "localhost,127.0.0.1", "GLOO_SOCKET_IFNAME": ""}
    ((sentence, _),) = refused(
        "all_reduce", ALL_REDUCE, 1, faults={0: loopback}, environ=two_nodes, tasks=2
    )
    assert "leads to 127.0.1.1, where other nodes cannot reach Gloo" in sentence


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


# --- repeated sums ---------------------------------------------------------------------------

SAME_SUMS = {
    **{"backend": "gloo", "timeout_s": 60, "join_timeout_s": 60},
    **{"size_bytes": 8192, "seconds": 0.1, "least": 2, "seed": 7},
}


def test_sums_are_the_same_in_every_call_and_one_wrong_bit_is_not():
    measured = document_of(run_ranks("same_sums", SAME_SUMS, 2))["measured"]
    for row in measured["operations"]:
        assert [list(own.values()) for own in row["hashes"]] == [[row["calls"]]] * 2
        assert len({digest for own in row["hashes"] for digest in own}) == 1
    flip = """
import torch, torch.distributed as dist
from validation.payloads import same_sums
whole = same_sums._work
def work(operation, numbers, group):
    call, calls = whole(operation, numbers, group), []
    def once_wrong():
        result = call()
        calls.append(1)
        if operation == "all_gather" and len(calls) == 2:
            result.view(torch.int32)[5] ^= 1
        return result
    return once_wrong
same_sums._work = work
"""
    measured = document_of(run_ranks("same_sums", SAME_SUMS, 2, faults={1: flip}))["measured"]
    different = {
        row["operation"]: [len(own) for own in row["hashes"]] for row in measured["operations"]
    }
    assert different == {"all_reduce": [1, 1], "all_gather": [1, 2], "broadcast": [1, 1]}
