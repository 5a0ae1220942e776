"""The training payloads' model, as torch's own modules; see `reference` for the formula.

Imports torch at the top, so import it only where torch is known to be there.
"""

# mypy: allow-subclassing-any
# (where torch is not installed, mypy knows nothing of the base class)

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class Residual(nn.Module):
    """x + scale * tanh(W x + b)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            self.linear.weight.copy_(weight)
            self.linear.bias.copy_(bias)
        self.scale = scale

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.scale * torch.tanh(self.linear(inputs))


def stack(parameters: Sequence[torch.Tensor], scale: float) -> nn.Sequential:
    """Layers with these values; `parameters()` yields them in the order in which they are given."""
    pairs = zip(parameters[::2], parameters[1::2], strict=True)
    return nn.Sequential(*(Residual(weight, bias, scale) for weight, bias in pairs))


def squared_distances(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of each sample."""
    return ((outputs - targets) ** 2).sum(dim=1)
