"""A transformer's block whose perceptron is many: experts that are spread over a row of ranks.

Imports torch at the top, so import it only where torch is known to be there.
"""

# mypy: allow-subclassing-any
# (where torch is not installed, mypy knows nothing of the base class)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from validation.payloads.transformer import Block, linear
from validation.payloads.transformer_reference import OF_ATTENTION, Shape


@dataclass(frozen=True)
class Way:
    """What a rank of a row sends to and gets from each rank of it.

    order   of the rank's own tokens when they leave: by expert, and so by rank
    sent    tokens to each rank, and `came` from each
    tokens  for each of the rank's experts, which of those that came are its
    """

    order: torch.Tensor
    sent: list[int]
    came: list[int]
    tokens: list[torch.Tensor]

    def to(self, device: torch.device) -> Way:
        tokens = [each.to(device) for each in self.tokens]
        return replace(self, order=self.order.to(device), tokens=tokens)


def way(routes: Sequence[torch.Tensor], place: int, each: int) -> Way:
    """routes: the expert of each token, rank by rank; each: experts of a rank.

    Tokens leave in the order of their experts, those of one expert in their own order.
    """
    orders = [route.argsort(stable=True) for route in routes]
    arrived = [
        route[order][route[order] // each == place]
        for route, order in zip(routes, orders, strict=True)
    ]
    experts = torch.cat(arrived) % each
    return Way(
        orders[place],
        [int((routes[place] // each == rank).sum()) for rank in range(len(routes))],
        [len(part) for part in arrived],
        [(experts == expert).nonzero().flatten() for expert in range(each)],
    )


class ExpertBlock(Block):
    """Attention, then experts, those of this rank; each has two values, up and down."""

    arriving: nn.Identity
    leaving: nn.Identity
    returning: nn.Identity

    def __init__(
        self,
        shape: Shape,
        attention: Sequence[torch.Tensor],
        experts: Sequence[torch.Tensor],
        way: Way,
        group: Any,
    ) -> None:
        super().__init__(shape, attention)
        self.experts = nn.ModuleList(map(linear, experts))
        self.way = way
        self.group = group
        # What passes these can be seen from outside.
        self.arriving, self.leaving, self.returning = (nn.Identity() for _ in range(3))

    def attention(self) -> list[nn.Parameter]:
        """What every rank has."""
        return [getattr(self, name).weight for name in OF_ATTENTION]

    def perceive(self, normal: torch.Tensor) -> torch.Tensor:
        way = self.way
        tokens = normal.flatten(0, 1)[way.order]
        came = self.arriving(exchange(tokens, way.sent, way.came, self.group))
        made = torch.zeros_like(came)
        for number, its in enumerate(way.tokens):
            up, down = self.experts[2 * number], self.experts[2 * number + 1]
            made = made.index_copy(0, its, down(F.silu(up(came[its]))))
        back = self.returning(exchange(self.leaving(made), way.came, way.sent, self.group))
        return torch.zeros_like(tokens).index_copy(0, way.order, back).view_as(normal)


def expert_blocks(model: nn.Sequential) -> list[ExpertBlock]:
    return [block for block in model if isinstance(block, ExpertBlock)]


def exchange(tokens: torch.Tensor, sent: list[int], came: list[int], group: Any) -> torch.Tensor:
    """all_to_all of rows, so many to and from each rank; its gradient takes the same way back."""
    from torch.distributed.nn import functional

    all_to_all: Any = functional.all_to_all_single  # carries no annotations
    room = tokens.new_empty(sum(came), tokens.shape[1])
    exchanged: torch.Tensor = all_to_all(
        room, tokens.contiguous(), output_split_sizes=came, input_split_sizes=sent, group=group
    )
    return exchanged
