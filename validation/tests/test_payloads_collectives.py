"""Every collective as real processes with Gloo, at the suite's own sizes, healthy and broken."""

import dataclasses
import json
import re

import pytest

from cluster.errors import CannotRun
from validation.model import Outcome, Reply, Verdict
from validation.tests.conftest import make_plan
from validation.tests.judging import judged

torch = pytest.importorskip("torch", reason="the collective payloads are torch programs")

from validation.payloads import collectives, pattern  # noqa: E402 - importorskip
from validation.payloads.config import load  # noqa: E402 - importorskip
from validation.tests.test_payloads_ranks import (  # noqa: E402 - importorskip
    document_of,
    named_by_the_others,
    run_ranks,
)

RANKS = 3
NODES = [(f"gpu{number}", "virtual", 1) for number in range(1, RANKS + 1)]


def of_suite():
    job = next(job for job in make_plan(*NODES, suite="network").jobs if job.name == "collectives")
    return job, json.loads(json.dumps({**job.config, "cpus_per_rank": None}))


def measured(config, ranks=RANKS, **options):
    """The document and the ways of its answer."""
    document = document_of(run_ranks("collectives", config, ranks, **options))
    return document, {
        (way["operation"], way["in_place"]): way["sizes"] for way in document["measured"]["ways"]
    }


def verdict_of(job, document):
    """Of ranks that were started on one machine, as if each had a node of its own."""
    for rank in document["proof"]["ranks"]:
        rank["local_rank"] = 0
    text = json.dumps(document, separators=(",", ":")) + "\n"
    reply = Reply(job.name, Outcome.EXITED, 0, "17", text)
    return judged("collectives", job, reply)


@pytest.mark.heavy("three ranks measure 48 sizes of eight ways")
def test_all_of_the_suite_arrive_whole_and_the_check_finds_nothing_wrong():
    job, config = of_suite()
    document, ways = measured(config)
    assert list(ways) == [
        (operation, in_place)
        for operation in config["operations"]
        for in_place in collectives.WAYS[operation]
    ]
    for (operation, _), sizes in ways.items():
        assert [size["wrong"] for size in sizes] == [[]] * len(config["sizes_bytes"])
        for size, asked in zip(sizes, config["sizes_bytes"], strict=True):
            assert size["bytes"] == collectives.moved(operation, asked, RANKS)
            assert size["calls_checked"] == config["warmup"] + config["iterations"]
            assert len(size["calls_s"]) == config["iterations"]
            assert min(size["calls_s"]) > 0
    result = verdict_of(job, document)
    if result.verdict is not Verdict.PASS:  # how fast two busy cores are is not what this tests
        assert re.search("GB/s, at least|times the median|times what the other", result.message)


# Faults of one rank, each in an operation of its own, so that one run shows them all.
FAULTS = {
    # One bit of one element: the lowest of the mantissa, and the sign.
    ("all_gather", False): """
def one_bit(result, given, gather=c.gather):
    gather(result, given)
    result.view(torch.int32)[3] ^= 1
c.gather = one_bit""",
    # The sign of one element in place; out of place nothing arrives, and the last result stays.
    ("reduce_scatter", True): """
def sign(result, given, scatter=c.scatter):
    in_place = 0 <= result.data_ptr() - given.data_ptr() < 4 * len(given)
    scatter(result if in_place or not kept_sums else torch.empty_like(result), given)
    kept_sums.append(0)
    if in_place:
        result[1] *= -1
kept_sums = []
c.scatter = sign""",
    # Two senders take each other's place.
    ("all_to_all", False): """
def swapped(result, given, exchange=c.exchange):
    exchange(result, given)
    result[[0, 2]] = result[[2, 0]]
c.exchange = swapped""",
    # What came in the call before.
    ("broadcast", True): """
kept = {}
def stale(buffer, spread=c.spread):
    spread(buffer)
    now = buffer.clone()
    buffer.copy_(kept.get(len(buffer), now))
    kept[len(buffer)] = now
c.spread = stale""",
    # A block that lies one element further.
    ("sendrecv", False): """
def shifted(result, given, before, after, pass_on=c.pass_on):
    pass_on(result, given, before, after)
    result.copy_(result.roll(1))
c.pass_on = shifted""",
}
BROKEN = "import torch\nfrom validation.payloads import collectives as c\n"


@pytest.mark.heavy("three ranks measure a size of seven ways")
def test_one_bit_a_swapped_sender_a_stale_buffer_and_a_shifted_block_are_seen():
    job, config = of_suite()
    sizes = [2048]
    config |= {"sizes_bytes": sizes, "iterations": 2}
    config["operations"] = [name for name in config["operations"] if name != "all_reduce"]
    calls = config["warmup"] + config["iterations"]
    fault = BROKEN + "\n".join(FAULTS.values())
    document, ways = measured(config, faults={1: fault})
    wrong = {way: rows[0]["wrong"] for way, rows in ways.items()}
    block = sizes[0] // 4 // RANKS
    assert wrong["all_gather", False] == [[1, 0, calls]]
    assert wrong["reduce_scatter", True] == [[1, None, calls]]
    assert wrong["reduce_scatter", False] == [[1, None, (calls - 1) * block]]
    assert wrong["all_to_all", False] == [[1, 0, calls * block], [1, 2, calls * block]]
    assert wrong["broadcast", True] == [[1, 0, (calls - 1) * sizes[0] // 4]]
    (receiver, sender, count), *others = wrong["sendrecv", False]
    assert (receiver, sender, others) == (1, 0, [])
    assert count > 0.99 * calls * sizes[0] // 4  # by chance two neighbours may be equal

    changed = {**job.config, **config, "cpus_per_rank": 1}
    result = verdict_of(dataclasses.replace(job, config=changed), document)
    assert result.verdict is Verdict.FAIL
    assert "all_gather 2 KiB are wrong, on rank 1 on gpu2, sent by rank 0 on gpu1" in result.message
    assert result.blamed == ("gpu2",)  # all_to_all came to it from two nodes, straight from them


@pytest.mark.parametrize("frozen", [pytest.param(0, marks=pytest.mark.long), 2])
def test_a_rank_that_freezes_in_all_to_all_is_named_by_the_others(frozen):
    """With three ranks each exchanges with the frozen one; nobody knows more than that it waits."""
    freeze = f"""{BROKEN}
import os, signal
def instead(result, given, exchange=c.exchange, calls=[]):
    calls.append(0)
    len(calls) == 3 and os.kill(os.getpid(), signal.SIGSTOP)
    exchange(result, given)
c.exchange = instead"""
    _, config = of_suite()
    config |= {"operations": ["all_to_all"], "sizes_bytes": [524288], "timeout_s": 4}
    for sentence in named_by_the_others("collectives", config, RANKS, frozen, freeze):
        assert "(while timing all_to_all of 524288 bytes)" in sentence


def test_nccl_tests_runs_once_on_a_node_and_the_other_ranks_wait():
    """With a stand-in for GPUs and for its programs; the first rank is the last to be ready."""
    fault = """
import os, time
from validation.payloads import collectives, nccl_tests
collectives._memory = lambda group: 85_000_000_000
nccl_tests.installed = lambda operations: {"all_gather": "x"}
def measure(programs, gpus, size, limit_s):
    time.sleep(1)
    return [{"rank": os.environ["SLURM_PROCID"], "gpus": gpus, "size": size}]
nccl_tests.measure = measure"""
    _, config = of_suite()
    config |= {"operations": ["broadcast"], "sizes_bytes": [8, 128], "iterations": 1}
    faults = dict.fromkeys(range(RANKS), fault)
    document, _ = measured(config, faults=faults, environ={"SLURMD_NODENAME": "gpu1"})
    figures = [{"rank": "0", "gpus": RANKS, "size": 128}]
    expected = [{"host": "gpu1", "bytes": 128, "figures": figures}]
    assert document["measured"]["nccl_tests"] == expected


# --- the pattern -----------------------------------------------------------------------------

CPU = torch.device("cpu")
ELEMENTS = 3 * pattern.PERIOD + 5


def message(sender, receiver, call, elements=ELEMENTS):
    """What is filled in for one message."""
    buffer = torch.empty(1, elements)
    one, other = (range(rank, rank + 1) for rank in (sender, receiver))
    pattern.Messages(CPU).fill(buffer, one, other, call)
    return buffer


def wrong(buffer, sender=1, receiver=2, call=3):
    one, other = (range(rank, rank + 1) for rank in (sender, receiver))
    return int(pattern.Messages(CPU).wrong(buffer, one, other, call))


def test_another_sender_receiver_or_call_changes_nearly_every_element():
    assert wrong(message(1, 2, 3)) == 0
    for other in ((2, 2, 3), (1, 1, 3), (1, 2, 2), (2, 1, 3), (1, pattern.EVERYBODY, 3)):
        assert wrong(message(*other)) > 0.999 * ELEMENTS
    for shift in (1, 2, 1024, 8192):
        assert wrong(message(1, 2, 3).roll(shift)) > 0.999 * ELEMENTS


@pytest.mark.parametrize("bit", range(32))
def test_every_bit_of_an_element_counts_and_all_are_used(bit):
    buffer = message(1, 2, 3)
    buffer.view(torch.int32)[0, 7] ^= 1 << bit if bit < 31 else -(1 << 31)
    assert wrong(buffer) == 1
    used = float((message(1, 2, 3).view(torch.int32) >> bit & 1).double().mean())
    assert used == 0 if bit == 30 else 0.4 < used < 0.6  # with bit 30 some would be no numbers


def test_all_of_it_are_numbers_and_none_equals_what_is_put_there_before():
    assert torch.isfinite(message(1, 2, 3)).all()
    buffer = torch.full((1, ELEMENTS), torch.nan)
    assert wrong(buffer) == ELEMENTS


@pytest.mark.parametrize(("ranks", "elements"), [(3, ELEMENTS), (700, 5), (2, 5_000_000)])
def test_messages_of_all_ranks_are_filled_and_compared_in_parts(ranks, elements):
    """More messages, or longer ones, than are looked at at a time."""
    messages = pattern.Messages(CPU)
    buffer = torch.empty(ranks, elements)
    everybody, me = range(ranks), range(1, 2)
    messages.fill(buffer, everybody, me, 4)
    assert torch.equal(buffer[ranks - 1][None], message(ranks - 1, 1, 4, elements))
    buffer[ranks - 1, elements - 1] += 1e30
    buffer[0, 0] = torch.nan
    counts = messages.wrong(buffer, everybody, me, 4)
    assert counts.tolist() == [1, *[0] * (ranks - 2), 1]


def test_sizes_are_whole_blocks_and_fit_into_the_memory():
    assert collectives.moved("all_gather", 8, 5) == 20  # one element of each rank
    assert collectives.moved("all_to_all", 2048, 3) == 2040
    assert collectives.moved("broadcast", 2048, 3) == 2048
    sizes = (1024, 4096, 16384)
    assert collectives.fitting(sizes, None) == sizes
    assert collectives.fitting(sizes, 16384) == (1024, 4096)
    assert collectives.fitting(sizes, 100) == ()


def test_of_many_senders_whose_elements_are_wrong_the_first_and_the_last_are_named():
    assert collectives._spoiled([0, 0, 0]) == []
    assert collectives._spoiled([0, 2, 3]) == [(1, 2), (2, 3)]
    assert collectives._spoiled([1, 2, 3, 4]) == [(0, 1), (3, 9)]


def test_a_rank_alone_measures_all_and_nothing_is_wrong():
    _, config = of_suite()
    config |= {"sizes_bytes": [8, 2048], "iterations": 2}
    _, ways = measured(config, ranks=1)
    assert len(ways) == 8
    assert {str(size["wrong"]) for sizes in ways.values() for size in sizes} == {"[]"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"operations": ["gather"]}, 'operations has "gather", not one of all_reduce, all_gather'),
        ({"sizes_bytes": [6]}, "sizes_bytes has 6, no multiple of 4 bytes"),
        ({"iterations": 0}, "iterations is 0, not above zero"),
        ({"dtype": "float64"}, 'dtype is "float64", and only float32 is supported'),
    ],
)
def test_a_config_that_cannot_be_run_is_refused_in_a_sentence(change, words):
    _, config = of_suite()
    with pytest.raises(CannotRun, match=re.escape(words)):
        load(collectives.Config, json.dumps(config | change))
