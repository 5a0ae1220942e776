"""A small transformer as torch's own modules; see `transformer_reference` for the formula.

What the payloads hold against the formula is seen by hooks on these modules, so nothing in them
knows whether they are sharded, sliced or spread over a pipeline.

Imports torch at the top, so import it only where torch is known to be there.
"""

# mypy: allow-subclassing-any
# (where torch is not installed, mypy knows nothing of the base class)

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from validation.payloads.transformer_reference import EPSILON, OF_ATTENTION, OF_EXPERT, Shape


class Norm(nn.Module):
    """RMSNorm without gain."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), eps=EPSILON)


class Block(nn.Module):
    """Attention, then a perceptron. `parameters()` yields them in the formula's order."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    up: nn.Linear
    down: nn.Linear

    def __init__(self, shape: Shape, values: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.scale = shape.scale
        self.head_width = shape.head_width
        self.before_attention = Norm()
        self.before_perceptron = Norm()
        for name, value in zip(OF_ATTENTION + OF_EXPERT, values, strict=False):
            setattr(self, name, linear(value))

    def forward(self, entered: torch.Tensor) -> torch.Tensor:
        normal = self.before_attention(entered)
        query, key, value = (
            projection(normal).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        middle = entered + self.scale * self.output(found.transpose(1, 2).flatten(2))
        left: torch.Tensor = middle + self.scale * self.perceive(self.before_perceptron(middle))
        return left

    def perceive(self, normal: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.down(F.silu(self.up(normal)))
        return added


def blocks_of(model: nn.Sequential) -> list[Block]:
    return [block for block in model if isinstance(block, Block)]


def linear(value: torch.Tensor) -> nn.Linear:
    """A layer without bias that has this value, [out, in]."""
    layer = nn.Linear(value.shape[1], value.shape[0], bias=False)
    with torch.no_grad():
        layer.weight.copy_(value)
    return layer


def stack(shape: Shape, values: Sequence[torch.Tensor]) -> nn.Sequential:
    """Blocks with these values, all of the model's or those of a stage."""
    count = len(values) // len(shape.names)
    return nn.Sequential(*(Block(shape, shape.block(values, number)) for number in range(count)))


def squared_distances(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of each sample, [samples]."""
    return ((outputs - targets) ** 2).sum(dim=(1, 2))
