"""A small transformer by formula, in float64 on the CPU: what its trainings are held against.

As `reference`: no autograd, no optimizer and no layer of torch. A block is pre-norm, causal and has
no biases. It has two halves:

    middle = entered + s * attention(norm(entered)) Wo^T
    left   = middle  + s * silu(norm(middle) Wu^T) Wd^T

norm divides by the root mean square over the width (RMSNorm without gain; Zhang & Sennrich, "Root
mean square layer normalization", NeurIPS 2019), s = (2 L)^-0.5 of L blocks. With several experts
the second half has a Wu and a Wd for each, and a route says which expert a token goes to.

Activations are [samples, tokens, width]. A block's parameters are those of queries, keys and values
(each [heads * head_width, width]), output ([width, heads * head_width]), then up ([hidden, width])
and down ([width, hidden]) of each expert. Some of the heads or of the hidden units give their share
of the sum, so the same formula says what one rank of a tensor-parallel group owes.

Imports torch at the top, so import it only where torch is known to be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from validation.payloads.reference import Pass, Step, Tensors

EPSILON = 1e-6
OF_ATTENTION = ("query", "key", "value", "output")
OF_EXPERT = ("up", "down")


@dataclass(frozen=True)
class Shape:
    """Of a whole model, over all of its ranks."""

    width: int
    depth: int
    heads: int
    head_width: int
    hidden: int
    experts: int = 1

    @property
    def scale(self) -> float:
        """s: the sum of all halves is about as large as one alone, however many there are."""
        return float((2 * self.depth) ** -0.5)

    @property
    def names(self) -> tuple[str, ...]:
        """Of a block's parameters, in order."""
        return OF_ATTENTION + OF_EXPERT * self.experts

    def size(self, name: str) -> tuple[int, int]:
        """[out, in] of a parameter."""
        inner = self.heads * self.head_width
        match name:
            case "output":
                return self.width, inner
            case "up":
                return self.hidden, self.width
            case "down":
                return self.width, self.hidden
        return inner, self.width

    def block(self, parameters: Sequence[torch.Tensor], number: int) -> Sequence[torch.Tensor]:
        count = len(self.names)
        return parameters[number * count : (number + 1) * count]


def initial(seed: int, shape: Shape) -> Tensors:
    """The blocks' parameters in turn, float32 on the CPU, the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(shape.size(name), generator=generator) / shape.size(name)[1] ** 0.5
        for _ in range(shape.depth)
        for name in shape.names
    )


# --- the halves of a block -----------------------------------------------------------------------


def norm(x: torch.Tensor) -> torch.Tensor:
    return x / _length(x)


def _length(x: torch.Tensor) -> torch.Tensor:
    return ((x * x).mean(dim=-1, keepdim=True) + EPSILON).sqrt()


def _norm_back(x: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
    """The gradient of x from that of norm(x)."""
    length = _length(x)
    return back / length - x * (back * x).mean(dim=-1, keepdim=True) / length**3


@dataclass(frozen=True)
class Attention:
    """Of some heads: [samples, heads, tokens, …] each, and what they found: joined, per token."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    shares: torch.Tensor
    joined: torch.Tensor


def attend(normal: torch.Tensor, head_width: int, *projections: torch.Tensor) -> Attention:
    """projections: of queries, keys and values."""
    query, key, value = (_apart(normal @ each.T, head_width) for each in projections)
    later = torch.ones(normal.shape[1], normal.shape[1], dtype=torch.bool).triu(1)
    scores = (query @ key.mT / head_width**0.5).masked_fill(later, -torch.inf)
    powers = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    shares = powers / powers.sum(dim=-1, keepdim=True)
    return Attention(query, key, value, shares, _joined(shares @ value))


def _attend_back(kept: Attention, back: torch.Tensor, head_width: int) -> Tensors:
    """The gradients of queries, keys and values, per token."""
    back = _apart(back, head_width)
    chosen = back @ kept.value.mT
    scores = kept.shares * (chosen - (chosen * kept.shares).sum(dim=-1, keepdim=True))
    scores = scores / head_width**0.5
    return tuple(map(_joined, (scores @ kept.key, scores.mT @ kept.query, kept.shares.mT @ back)))


def _apart(x: torch.Tensor, head_width: int) -> torch.Tensor:
    return x.reshape(*x.shape[:-1], -1, head_width).transpose(1, 2)


def _joined(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).flatten(2)


def perceive(normal: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """What hidden units add, [..., width]."""
    inner = normal @ up.T
    return inner / (1 + (-inner).exp()) @ down.T


def _perceive_back(
    normal: torch.Tensor, up: torch.Tensor, down: torch.Tensor, back: torch.Tensor
) -> Tensors:
    """The gradients of normal, up and down. Shapes [rows, width]."""
    inner = normal @ up.T
    sigmoid = 1 / (1 + (-inner).exp())
    slope = back @ down * sigmoid * (1 + inner * (1 - sigmoid))
    return slope @ up, slope.T @ normal, back.T @ (inner * sigmoid)


# --- the whole -----------------------------------------------------------------------------------


def of(shape: Shape, routes: torch.Tensor | None = None) -> Step:
    """The model, for reference.train; see compute."""

    def step(
        parameters: Sequence[torch.Tensor],
        inputs: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor,
    ) -> Pass:
        return compute(parameters, shape, inputs, targets, weights, routes)

    return step


def forward(
    parameters: Sequence[torch.Tensor],
    shape: Shape,
    inputs: torch.Tensor,
    routes: torch.Tensor | None = None,
) -> tuple[list[torch.Tensor], list[Attention]]:
    """Through these blocks, all of the model's or those of a stage: what enters each half, and last
    what leaves; and what attention keeps.
    """
    parameters = [parameter.double() for parameter in parameters]
    activations = [inputs.double()]
    kept: list[Attention] = []
    for number in range(len(parameters) // len(shape.names)):
        block, entered = shape.block(parameters, number), activations[-1]
        kept.append(attend(norm(entered), shape.head_width, *block[:3]))
        middle = entered + shape.scale * kept[-1].joined @ block[3].T
        activations += [middle, middle + shape.scale * _experts(norm(middle), block, routes)]
    return activations, kept


def compute(
    parameters: Sequence[torch.Tensor],
    shape: Shape,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    weights: torch.Tensor,
    routes: torch.Tensor | None = None,
) -> Pass:
    """Once forward and backward. The pass's activations are what enters each half of each block.

    weights: of the samples; routes: each token's expert, [samples, tokens], where there are several
    """
    parameters = [parameter.double() for parameter in parameters]
    activations, kept = forward(parameters, shape, inputs, routes)
    distance = activations[-1] - targets.double()
    losses = (distance * distance).sum(dim=(1, 2))

    gradients: list[torch.Tensor] = []
    back = 2 * weights.double()[:, None, None] * distance
    for number in reversed(range(shape.depth)):
        block, (entered, middle) = shape.block(parameters, number), activations[2 * number :][:2]
        normal, of_experts = _experts_back(norm(middle), block, routes, shape.scale * back)
        back = back + _norm_back(middle, normal)
        out = shape.scale * back
        inner = _attend_back(kept[number], out @ block[3], shape.head_width)
        normal = norm(entered)
        of_attention = [each.flatten(0, 1).T @ normal.flatten(0, 1) for each in inner]
        of_attention.append(out.flatten(0, 1).T @ kept[number].joined.flatten(0, 1))
        gradients[:0] = [*of_attention, *of_experts]
        through = sum((each @ one for each, one in zip(inner, block[:3], strict=True)), back * 0)
        back = back + _norm_back(entered, through)
    return Pass(tuple(activations), losses, tuple(gradients))


def _experts(
    normal: torch.Tensor, block: Sequence[torch.Tensor], routes: torch.Tensor | None
) -> torch.Tensor:
    if routes is None:
        return perceive(normal, *block[4:])
    added = torch.zeros_like(normal)
    for expert, (up, down) in enumerate(zip(block[4::2], block[5::2], strict=True)):
        added[routes == expert] = perceive(normal[routes == expert], up, down)
    return added


def _experts_back(
    normal: torch.Tensor,
    block: Sequence[torch.Tensor],
    routes: torch.Tensor | None,
    back: torch.Tensor,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The gradient of normal, and those of each expert's parameters."""
    if routes is None:
        routes = torch.zeros(normal.shape[:2], dtype=torch.int64)
    through, gradients = torch.zeros_like(normal), []
    for expert, (up, down) in enumerate(zip(block[4::2], block[5::2], strict=True)):
        its = routes == expert
        through[its], *own = _perceive_back(normal[its], up, down, back[its])
        gradients += own
    return through, gradients
