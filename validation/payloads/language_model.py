"""The transformer of `decoder` as one of torch's modules, to be trained.

Imports torch at the top, so import it only where torch is known to be there.
"""

# mypy: allow-subclassing-any
# (where torch is not installed, mypy knows nothing of the base class)

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from validation.payloads.decoder import EPSILON, OF_BLOCK, Shape, Weights, positions


class LanguageModel(nn.Module):
    """Gives the mean loss of guessing each token from those before it."""

    def __init__(self, shape: Shape, weights: Weights, sequence: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Parameter(weights.embedding.clone())
        self.head = nn.Parameter(weights.head.clone())
        self.blocks = nn.ModuleList(
            nn.ParameterDict({name: nn.Parameter(block[name].clone()) for name in OF_BLOCK})
            for block in weights.blocks
        )
        places = positions(0, sequence, shape.width).float()
        self.places = nn.Parameter(places, requires_grad=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: [sequences, sequence + 1]; the last of each is only guessed."""
        x = F.embedding(tokens[:, :-1], self.embedding) + self.places
        block: Any
        for block in self.blocks:
            normal = self._norm(x)
            query, key, value = (
                F.linear(normal, block[name])
                .reshape(*x.shape[:2], self.shape.heads, self.shape.head_width)
                .transpose(1, 2)
                for name in ("query", "key", "value")
            )
            found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            together = found.transpose(1, 2).reshape(x.shape)
            x = x + self.shape.scale * F.linear(together, block["output"])
            up = F.silu(F.linear(self._norm(x), block["up"]))
            x = x + self.shape.scale * F.linear(up, block["down"])
        logits = F.linear(self._norm(x), self.head)
        loss: torch.Tensor = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        return loss

    def _norm(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (self.shape.width,), eps=EPSILON)
