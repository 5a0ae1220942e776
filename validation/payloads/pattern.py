"""What a buffer is filled with, so that whatever goes wrong on its way changes what arrives.

A message's element i, from one rank to another in one call, has the bits of element(i) XOR
message(sender, receiver, call), both hashed. So another sender, another receiver and an earlier
call differ in nearly every element, a shift within the message likewise, and every bit counts:
mantissa, sign and exponent, but the exponent's highest, which stays 0 so that all are finite
numbers of float32. The pattern repeats every PERIOD elements, a prime, because buffers are cut into
powers of two. What arrives is compared bit by bit.

What ranks add up cannot be any bits; all_reduce has those numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PERIOD = 8191
EVERYBODY = -1  # the receiver of what all ranks get alike

_TILE_PERIODS = 512  # of the pattern at a time: 16 MiB, small beside any buffer worth measuring


def mix(value: torch.Tensor) -> torch.Tensor:
    """Spreads whole numbers over all 64 bits (splitmix64); products wrap around."""
    value = value * -7046029254386353131
    value = (value ^ (value >> 30 & 2**34 - 1)) * -4658895280553007687
    value = (value ^ (value >> 27 & 2**37 - 1)) * -7723592293110705685
    return value ^ (value >> 31 & 2**33 - 1)


class Messages:
    """Fills and compares messages on one device."""

    def __init__(self, device: torch.device) -> None:
        import torch

        element = torch.arange(PERIOD, device=device)
        self._elements = _bits(mix(element + 1)).repeat(_TILE_PERIODS)

    def fill(self, buffer: torch.Tensor, senders: range, receivers: range, call: int) -> None:
        """Writes the messages between these ranks, float32 [messages, elements]; one of the two
        ranges may have a single rank for all messages.
        """
        import torch

        for words, elements, own in self._parts(buffer, senders, receivers, call):
            torch.bitwise_xor(elements, own, out=words)

    def wrong(
        self, buffer: torch.Tensor, senders: range, receivers: range, call: int
    ) -> torch.Tensor:
        """How many elements of each message differ: whole numbers, [messages].

        The count stays on the device: reading it would make the host wait for the GPU.
        """
        import torch

        wrong = torch.zeros(len(buffer), dtype=torch.int64, device=buffer.device)
        row = 0
        for words, elements, own in self._parts(buffer, senders, receivers, call):
            wrong[row : row + len(words)] += ((words ^ own) != elements).sum(dim=1)
            row = (row + len(words)) % len(buffer)
        return wrong

    def _parts(
        self, buffer: torch.Tensor, senders: range, receivers: range, call: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Words of the buffer as whole numbers, the pattern of their elements, and the messages'
        own bits: so many at a time as the tile has.
        """
        words = buffer.view(_int32())
        own = _messages(senders, receivers, call, buffer.device)[:, None]
        tile = len(self._elements)
        columns = min(words.shape[1], tile)
        rows = max(1, tile // columns)
        for column in range(0, words.shape[1], columns):
            elements = self._elements[None, : min(columns, words.shape[1] - column)]
            for row in range(0, len(words), rows):
                part = words[row : row + rows, column : column + columns]
                yield part, elements, own[row : row + rows]


def _messages(senders: range, receivers: range, call: int, device: torch.device) -> torch.Tensor:
    """The bits of each message of a call, [messages]."""
    import torch

    sender, receiver = (
        torch.arange(ranks.start, ranks.stop, device=device) for ranks in (senders, receivers)
    )
    return _bits(mix(mix(mix(sender + 1) + receiver + 2) + call + 1))


def _bits(hashed: torch.Tensor) -> torch.Tensor:
    """32 bits of a hash, but the exponent's highest: finite float32 whatever they are."""
    return ((hashed & 2**30 - 1) - ((hashed >> 40 & 1) << 31)).to(_int32())


def _int32() -> torch.dtype:
    import torch

    return torch.int32
