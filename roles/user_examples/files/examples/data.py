"""Pictures that need no download: 10 classes, each a pattern of its own below noise."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

CLASSES = 10
PIXELS = 32


class Pictures(Dataset[tuple[Tensor, int]]):
    """`count` pictures of shape (3, 32, 32), each made from its own number: the same everywhere."""

    def __init__(self, count: int, first: int = 0) -> None:
        self._count, self._first = count, first
        coarse = torch.randn(CLASSES, 3, PIXELS // 8, PIXELS // 8, generator=seeded(0))
        self._patterns = coarse.repeat_interleave(8, 2).repeat_interleave(8, 3)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        number = self._first + index
        label = number % CLASSES
        noise = torch.randn(3, PIXELS, PIXELS, generator=seeded(number + 1))
        return self._patterns[label] + 2 * noise, label


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(width: int = 32) -> nn.Module:
    """A small convolutional network; `width` is its number of channels."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(8 * width, CLASSES),
    )
