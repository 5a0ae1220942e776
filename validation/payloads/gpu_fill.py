"""All memory of a GPU that is free: written as a whole, then read as a whole, twice.

Every word holds a number that belongs to its place alone, and in the second pass its complement. So
a cell that keeps nothing shows, a bit that is stuck at either value, and an address that leads to
another's memory. Reading begins when all is written: nothing comes out of a cache.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from validation.payloads.gpu_device import Device

if TYPE_CHECKING:
    import torch

SHARE = 0.95  # of what is free; CUDA and torch need the rest
SECONDS = 30.0  # an H100 takes one
BLOCK = 256 * 2**20  # bytes
SCRATCH = 3  # blocks beside those that are filled: two of numbers, one for the comparison
PASSES = 2

# In the place of a GPU's memory, so that a node without one shows that this works.
CPU_BYTES, CPU_BLOCK = 8 * 2**20, 2**20

_WORD = 8
_ODD = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: neighbours differ in half of their bits


def whole(device: Device) -> dict[str, Any]:
    """Fills and reads the device's free memory.

    total, free   bytes of the device, and what was free before
    filled        bytes that were written, and read back
    passes        how often, with other bits each time
    wrong         words that were not as they were written, over all passes
    first         the block and the word of the first of them, None without one
    seconds       for all of it
    """
    import torch

    began = time.monotonic()
    total, free, block = _sizes(device)
    words = block // _WORD
    base = torch.arange(words, device=device.torch) * _signed(_ODD)
    scratch = torch.empty_like(base)
    room = int(free * SHARE) - SCRATCH * block
    blocks: list[torch.Tensor] = []
    while (len(blocks) + 1) * block <= room and time.monotonic() - began < SECONDS:
        try:
            blocks.append(torch.empty_like(base))
        except torch.cuda.OutOfMemoryError:  # what is left is in pieces
            break
    wrong, first = 0, None
    for turn in range(PASSES):
        for number, filled in enumerate(blocks):
            _numbers(base, number, turn, filled)
        for number, filled in enumerate(blocks):
            _numbers(base, number, turn, scratch)
            unequal = filled != scratch
            if count := int(unequal.sum()):
                wrong += count
                first = first or [number, int(unequal.nonzero()[0])]
    return {
        "total": total,
        "free": free,
        "filled": len(blocks) * block,
        "passes": PASSES,
        "wrong": wrong,
        "first": first,
        "seconds": time.monotonic() - began,
    }


def least(free: int, is_gpu: bool) -> int:
    """Bytes that are filled at least, of so many that are free, unless time or room is short."""
    block = BLOCK if is_gpu else CPU_BLOCK
    return max(0, int(free * SHARE) - (SCRATCH + 1) * block)


def _sizes(device: Device) -> tuple[int, int, int]:
    """Bytes of the device, those that are free, and those of a block."""
    if not device.is_gpu:
        return CPU_BYTES, CPU_BYTES, CPU_BLOCK
    import torch

    free, total = torch.cuda.mem_get_info(device.torch)
    return total, free, BLOCK


def _numbers(base: torch.Tensor, number: int, turn: int, to: torch.Tensor) -> None:
    """The words of a block in a turn."""
    import torch

    torch.add(base, _signed(number * base.numel() * _ODD), out=to)
    if turn % 2:
        to.bitwise_not_()


def _signed(number: int) -> int:
    """The same 64 bits as a signed integer."""
    number %= 2**64
    return number - 2**64 if number >= 2**63 else number
