"""What the training payloads share: the model's blocks, the data, and the comparison with a
reference that one process computes alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from validation.payloads.config import GroupConfig, require_positive
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch

MOMENTUM = 0.9


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(GroupConfig):
    """seed: of weights and data, the same on all ranks; lr: of SGD with momentum 0.9."""

    seed: int
    steps: int
    width: int
    lr: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "steps", "width", "lr")


@dataclass(frozen=True)
class Measured:
    """A training and how far it went from its reference.

    losses, reference_losses   mean over the global batch, per step; the reference is rank 0's
    max_loss_difference        largest |loss - reference| over the steps and over all ranks'
                               references
    max_parameter_difference   largest |parameter - reference| over all parameters and all ranks
    parameters                 in the whole model
    step_time_s_median         of the slowest rank in each step
    samples_per_s              global batch / step_time_s_median
    """

    steps: int
    losses: list[float]
    reference_losses: list[float]
    max_loss_difference: float
    max_parameter_difference: float
    parameters: int
    samples_per_s: float
    step_time_s_median: float


def summarise(
    group: Group,
    *,
    losses: Sequence[float],
    reference_losses: Sequence[float],
    parameter_difference: float,
    parameters: int,
    samples_per_step: int,
    step_times: Sequence[float],
) -> Measured:
    """Joins what each rank found. Collective: all ranks must call it.

    `losses` are the training's, the same on every rank; the other values are this rank's own.
    """
    references = group.gather(list(reference_losses))
    step_time = statistics.median(group.slowest(step_times))
    return Measured(
        steps=len(losses),
        losses=list(losses),
        reference_losses=references[0],
        max_loss_difference=worst(difference(losses, reference) for reference in references),
        max_parameter_difference=worst(group.gather(parameter_difference)),
        parameters=parameters,
        samples_per_s=samples_per_step / step_time,
        step_time_s_median=step_time,
    )


def worst(values: Iterable[float]) -> float:
    """The largest value, and nan as soon as one of them is: `max` hides nan behind a number."""
    found = list(values)
    return math.nan if any(math.isnan(value) for value in found) else max(found)


def difference(left: Sequence[float], right: Sequence[float]) -> float:
    """Largest |left - right|, place by place; nan when one is not finite."""
    return worst(abs(a - b) for a, b in zip(left, right, strict=True))


def parameter_difference(left: torch.nn.Module, right: torch.nn.Module) -> float:
    """Largest |left - right| over all parameters of two modules of the same shape."""
    # Tensor.max passes nan on
    return worst(
        float((a.detach() - b.detach()).abs().max())
        for a, b in zip(left.parameters(), right.parameters(), strict=True)
    )


def count_parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def layers(width: int, depth: int) -> list[torch.nn.Module]:
    """`depth` times a square linear layer and tanh: smooth, so a small error stays small."""
    from torch import nn

    found: list[nn.Module] = []
    for _ in range(depth):
        found += [nn.Linear(width, width), nn.Tanh()]
    return found


def sgd(model: torch.nn.Module, lr: float) -> torch.optim.Optimizer:
    import torch

    return torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM)


def batches(config: TrainingConfig, samples: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs and targets of each step, both [samples, width] float32 on the CPU.

    The targets come from a fixed random map, so there is something to learn. The generator is the
    CPU's because a GPU's gives other numbers for the same seed.
    """
    import torch

    generator = torch.Generator().manual_seed(config.seed)
    teacher = torch.randn(config.width, config.width, generator=generator) / config.width**0.5
    for _ in range(config.steps):
        inputs = torch.randn(samples, config.width, generator=generator)
        yield inputs, torch.tanh(inputs @ teacher)
