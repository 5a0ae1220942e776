"""A small transformer that learns which word follows which, for the examples with large models."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS = 512
LENGTH = 32


class Block(nn.Module):
    """Attention and a feed-forward network, each with what came in added to it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, length, width)."""
        y = self.before(x)
        # How many heads are here depends on how many processes share them.
        query, key, value = (
            layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        x = x + self.down(functional.gelu(self.up(self.between(x))))
        return x


class Transformer(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4, layers: int = 4) -> None:
        super().__init__()
        self.word = nn.Embedding(WORDS, width)
        self.place = nn.Parameter(torch.zeros(LENGTH, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """words: (batch, length) -> (batch * length, WORDS)."""
        x = self.word(words) + self.place
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x.flatten(0, 1))
        return logits


def batch(size: int, step: int, rank: int = 0) -> tuple[Tensor, Tensor]:
    """Words of which each has one that follows it, and those that follow; both (size, LENGTH)."""
    follows = torch.randperm(WORDS, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1 + 1000 * step + rank)
    text = [torch.randint(WORDS, (size,), generator=generator)]
    for _ in range(LENGTH):
        text.append(follows[text[-1]])
    return torch.stack(text[:-1], 1), torch.stack(text[1:], 1)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits, targets.flatten())
