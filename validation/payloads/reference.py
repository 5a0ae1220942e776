"""A training by formula, in float64 on the CPU: what the distributed trainings are held against.

It shares as little as possible with what it judges: no autograd, no optimizer and no layer of
torch, another precision, and never the GPU. A device that computes wrongly on every rank alike
differs from it like any other fault.

The model is L residual layers x + s*tanh(W x + b), s = L**-0.5. The identity carries the signal and
the gradient through any number of layers, so that what the first layers get wrong shows at the
end, and the other way round. The loss of a sample is the squared distance to its target. Training
is SGD with momentum on a weighted sum of the samples' losses.

Imports torch at the top, so import it only where torch is known to be there.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

MOMENTUM = 0.9

Tensors = tuple[torch.Tensor, ...]
# Parameters, inputs, targets and the samples' weights become a pass.
Step = Callable[[Sequence[torch.Tensor], torch.Tensor, torch.Tensor, torch.Tensor], "Pass"]


def layer_scale(depth: int) -> float:
    """s: the sum of all layers is about as large as one alone would be, however many there are."""
    return float(depth**-0.5)


def initial(seed: int, width: int, depth: int) -> Tensors:
    """(W, b) of each layer in turn, float32 on the CPU, the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    values: list[torch.Tensor] = []
    for _ in range(depth):
        values.append(torch.randn(width, width, generator=generator) / width**0.5)
        values.append(torch.randn(width, generator=generator) / 10)
    return tuple(values)


@dataclass(frozen=True)
class Pass:
    """Once forward and backward.

    activations  what enters each layer, and last what leaves the model: [samples, width]
    losses       of each sample
    gradients    of the weighted sum of the losses, in the parameters' order
    """

    activations: Tensors
    losses: torch.Tensor
    gradients: Tensors


def forward(parameters: Sequence[torch.Tensor], scale: float, inputs: torch.Tensor) -> Tensors:
    """What enters each layer, and what leaves the last."""
    activations = [inputs.double()]
    for weight, bias in _layers(parameters):
        activations.append(
            activations[-1]
            + scale * torch.tanh(activations[-1] @ weight.double().T + bias.double())
        )
    return tuple(activations)


def of_layers(scale: float) -> Step:
    """The model of residual layers."""

    def step(
        parameters: Sequence[torch.Tensor],
        inputs: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor,
    ) -> Pass:
        return compute(parameters, scale, inputs, targets, weights)

    return step


def compute(
    parameters: Sequence[torch.Tensor],
    scale: float,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    weights: torch.Tensor,
) -> Pass:
    """weights: of the samples, [samples]."""
    activations = forward(parameters, scale, inputs)
    distance = activations[-1] - targets.double()
    losses = (distance * distance).sum(dim=1)

    gradients: list[torch.Tensor] = []
    back = 2 * weights.double()[:, None] * distance
    layers = _layers(parameters)
    for (weight, _), entered, left in zip(
        reversed(layers), reversed(activations[:-1]), reversed(activations[1:]), strict=True
    ):
        tanh = (left - entered) / scale
        inner = back * scale * (1 - tanh * tanh)
        gradients[:0] = [inner.T @ entered, inner.sum(dim=0)]
        back = back + inner @ weight.double()
    return Pass(activations, losses, tuple(gradients))


@dataclass(frozen=True)
class Reference:
    """A whole training.

    first       the first step's pass
    losses      each step's weighted sum of losses, before that step
    parameters  those that were kept: as they began, then after each step
    step_s      seconds of a step on one core, the median
    """

    first: Pass
    losses: tuple[float, ...]
    parameters: tuple[Tensors, ...]
    step_s: float


def train(
    parameters: Sequence[torch.Tensor],
    step: Step,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    weights: torch.Tensor,
    lr: float,
    kept: slice = slice(None),
) -> Reference:
    """step: the model; kept: whose values after each step the result holds; all may be too many."""
    now = [parameter.double() for parameter in parameters]
    velocity = [torch.zeros_like(parameter) for parameter in now]
    first: Pass | None = None
    losses: list[float] = []
    times: list[float] = []
    history = [tuple(now[kept])]
    for inputs, targets in batches:
        start = time.perf_counter()
        current = step(now, inputs, targets, weights)
        first = first or current
        losses.append(float(weights.double() @ current.losses))
        velocity = [MOMENTUM * v + g for v, g in zip(velocity, current.gradients, strict=True)]
        now = [parameter - lr * v for parameter, v in zip(now, velocity, strict=True)]
        times.append(time.perf_counter() - start)
        history.append(tuple(now[kept]))
    assert first is not None  # a configuration asks for one step at least
    return Reference(first, tuple(losses), tuple(history), statistics.median(times))


def difference(
    actual: Iterable[torch.Tensor],
    expected: Iterable[torch.Tensor],
    origin: Iterable[torch.Tensor] | None = None,
) -> float:
    """The largest |actual - expected| / |expected - origin| over pairs of tensors; nan wins.

    Lengths are Euclidean. Without an origin it is 0. What should have moved and did not, because
    its expected length is 0, differs by inf unless it is equal; what has no elements is equal.
    """
    pairs = [(a.detach().cpu().double(), b.double()) for a, b in zip(actual, expected, strict=True)]
    starts = [torch.zeros_like(b) for _, b in pairs] if origin is None else list(origin)
    ratios = []
    for (a, b), start in zip(pairs, starts, strict=True):
        apart, moved = float(torch.norm(a - b)), float(torch.norm(b - start.double()))
        ratios.append(apart / moved if moved else (math.inf if apart else 0.0))
    return worst(ratios)


def movement(now: Iterable[torch.Tensor], origin: Iterable[torch.Tensor]) -> float:
    """The smallest |now - origin| / |origin| over pairs of tensors."""
    return min(
        float(torch.norm(a.double() - b.double()) / torch.norm(b.double()))
        for a, b in zip(now, origin, strict=True)
    )


def worst(values: Iterable[float]) -> float:
    """The largest value, and nan as soon as one of them is: `max` hides nan behind a number."""
    numbers = list(values)
    return math.nan if any(map(math.isnan, numbers)) else max(numbers)


def _layers(parameters: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(parameters[::2], parameters[1::2], strict=True))
