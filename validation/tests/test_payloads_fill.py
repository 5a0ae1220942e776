"""All of a device's memory: what each kind of fault in it leaves behind, in real tensors."""

import pytest
import torch

from validation.payloads import gpu_device, gpu_fill

MIB = 2**20


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """As many blocks as a GPU has, and small ones."""
    monkeypatch.setattr(gpu_fill, "CPU_BYTES", 64 * 2**16)
    monkeypatch.setattr(gpu_fill, "CPU_BLOCK", 2**16)


def filled():
    return gpu_fill.whole(gpu_device.start("cpu")[0])


def test_memory_that_keeps_everything_has_nothing_wrong():
    answer = filled()
    assert (answer["wrong"], answer["first"], answer["passes"]) == (0, None, 2)
    assert answer["filled"] == 57 * 2**16
    assert answer["filled"] >= gpu_fill.CPU_BYTES * 0.95 - 4 * gpu_fill.CPU_BLOCK


def broken(monkeypatch, harm):
    """What is written to the block 40 is harmed, once it is written."""
    usual = gpu_fill._numbers
    blocks: dict[int, torch.Tensor] = {}

    def numbers(base, number, turn, to):
        blocks.setdefault(number, to)
        usual(base, number, turn, to)
        if to is blocks[number] and number == 40:
            harm(to, blocks)

    monkeypatch.setattr(gpu_fill, "_numbers", numbers)


@pytest.mark.parametrize("bit", [0, 17, 62])
@pytest.mark.parametrize("stuck", [0, 1])
def test_a_bit_that_is_stuck_shows_in_one_of_the_passes(monkeypatch, bit, stuck):
    """Far behind the first buffers, in one word of 57 blocks."""

    def harm(block, _):
        block[4711] = block[4711] | (1 << bit) if stuck else block[4711] & ~(1 << bit)

    broken(monkeypatch, harm)
    answer = filled()
    assert answer["wrong"] == 1  # in the pass in which the bit has to be the other one
    assert answer["first"] == [40, 4711]


def test_an_address_that_leads_to_anothers_memory_shows(monkeypatch):
    usual = torch.empty_like
    made: list[torch.Tensor] = []

    def empty_like(tensor):
        made.append(made[10] if len(made) == 40 else usual(tensor))
        return made[-1]

    monkeypatch.setattr(torch, "empty_like", empty_like)
    answer = filled()
    assert answer["wrong"] == 2 * gpu_fill.CPU_BLOCK // 8
    assert answer["first"] == [9, 0]  # the first that was made is for comparison


def test_no_two_words_are_alike():
    base = torch.arange(2**13) * gpu_fill._signed(gpu_fill._ODD)
    words = [torch.empty_like(base) for _ in range(57)]
    for number, block in enumerate(words):
        gpu_fill._numbers(base, number, 0, block)
    assert torch.cat(words).unique().numel() == 57 * 2**13


def test_memory_in_pieces_and_a_slow_one_end_the_filling(monkeypatch):
    usual = torch.empty_like
    made: list[torch.Tensor] = []

    def empty_like(tensor):
        made.append(tensor)
        if len(made) == 20:
            raise torch.cuda.OutOfMemoryError
        return usual(tensor)

    monkeypatch.setattr(torch, "empty_like", empty_like)
    assert filled()["filled"] == 18 * gpu_fill.CPU_BLOCK
    monkeypatch.undo()
    monkeypatch.setattr(gpu_fill, "SECONDS", -1)
    assert filled()["filled"] == 0
