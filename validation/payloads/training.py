"""What the training payloads share: their configuration, the data, and what they report.

Every rank trains the reference by itself (see `reference`) and compares its own part with it, so
the figures are told for each rank, in the order in which they come about: what it computed alone,
what the ranks exchanged, its parameters after each step. Where the first of them is off is where
the fault is; from there it spreads to the others. Differences are relative to the reference's own
length or movement, so that a figure of 1 is a rank that did nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from validation.payloads.config import GroupConfig, require_positive
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch

    from validation.payloads.reference import Reference


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(GroupConfig):
    """seed: of weights and data, the same on all ranks; lr: of SGD with momentum."""

    seed: int
    steps: int
    width: int
    lr: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "steps", "width", "lr")


@dataclass(frozen=True)
class RankFigures:
    """How far one rank is from the reference.

    first_step   by name, what the first step gave; see the payloads
    steps        after each step, "parameters": |parameters - reference| / |what the reference moved
                 until then|, the worst of the rank's tensors
    movement     |what the reference moved in all| / |where it began|, the smallest of the tensors
    """

    rank: int
    first_step: dict[str, float]
    steps: list[dict[str, float]]
    movement: float


def curve(ranks: int, losses: Sequence[float], references: Sequence[float]) -> dict[str, Any]:
    """Losses before each step, of so many ranks that train one model, beside the reference's."""
    steps = zip(losses, references, strict=True)
    return {"ranks": ranks, "steps": [{"loss": mine, "reference": ref} for mine, ref in steps]}


def report(
    group: Group,
    *,
    mine: RankFigures,
    curves: Sequence[Mapping[str, Any]],
    parameters: int,
    samples_per_step: int,
    step_times: Sequence[float],
) -> dict[str, Any]:
    """Joins what each rank found. Collective: all ranks must call it.

    parameters           in the whole model
    step_time_s_median   of the slowest rank in each step
    samples_per_s        samples of all ranks / step_time_s_median
    transport            over what the ranks spoke, see Group.transport
    """
    step_time = statistics.median(group.slowest(step_times))
    return {
        "steps": len(step_times),
        "curves": list(curves),
        "ranks": group.gather(asdict(mine)),
        "parameters": parameters,
        "samples_per_s": samples_per_step / step_time,
        "step_time_s_median": step_time,
        "transport": group.transport(),
    }


def figures(
    rank: int,
    *,
    first_step: dict[str, float],
    parameters: Sequence[Sequence[torch.Tensor]],
    reference: Reference,
) -> RankFigures:
    """parameters: the rank's, after each step; the reference kept the same ones."""
    from validation.payloads.reference import difference, movement

    start, *after = reference.parameters
    return RankFigures(
        rank,
        first_step,
        [
            {"parameters": difference(mine, theirs, start)}
            for mine, theirs in zip(parameters, after, strict=True)
        ],
        movement(after[-1], start),
    )


def copies(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """As they are now, on the CPU."""
    return [tensor.detach().cpu().clone() for tensor in tensors]


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """sha256 of the bits of these tensors."""
    content = hashlib.sha256()
    for tensor in tensors:
        held = tensor.detach().cpu().contiguous()
        # Read where it lies: torch has no other way to a tensor's bytes that needs no numpy and
        # does not make a Python object of each.
        memory = ctypes.c_char * (held.numel() * held.element_size())
        content.update(memory.from_address(held.data_ptr()) if held.numel() else b"")
    return content.hexdigest()


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    """Of all parameters. Zeros for one that got none: that is what it would be trained with."""
    import torch

    return [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for parameter in model.parameters()
    ]


def sgd(model: torch.nn.Module, lr: float) -> torch.optim.Optimizer:
    import torch

    from validation.payloads.reference import MOMENTUM

    return torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM)


def batches(config: TrainingConfig, samples: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs and targets of each step, both [samples, width] float32 on the CPU.

    The targets come from a fixed random map, so there is something to learn. The generator is the
    CPU's because a GPU's gives other numbers for the same seed.
    """
    import torch

    generator = torch.Generator().manual_seed(config.seed + 1)  # the weights have the seed itself
    teacher = torch.randn(config.width, config.width, generator=generator) / config.width**0.5
    for _ in range(config.steps):
        inputs = torch.randn(samples, config.width, generator=generator)
        yield inputs, torch.tanh(inputs @ teacher)
