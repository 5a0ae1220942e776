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
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from validation.payloads.config import GroupConfig, require
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch

    from validation.payloads import decoder
    from validation.payloads.transformer_reference import Shape


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(GroupConfig):
    """seed: of weights and data, the same on all ranks; lr: of SGD with momentum."""

    seed: int
    steps: int
    width: int
    lr: float


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TrainingConfig):
    """tokens: of each sample; heads and hidden: what one tensor-parallel rank has of a block."""

    tokens: int
    heads: int
    head_width: int
    hidden: int

    def shape(self, depth: int, tensor: int = 1, experts: int = 1) -> Shape:
        """Of a model of so many blocks, whose heads and hidden units so many ranks share."""
        from validation.payloads.transformer_reference import Shape

        return Shape(
            self.width,
            depth,
            self.heads * tensor,
            self.head_width,
            self.hidden * tensor,
            experts,
        )


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(GroupConfig):
    """A model, see decoder.Shape. seed: of weights and data, the same on all ranks."""

    seed: int
    vocabulary: int
    width: int
    heads: int
    hidden: int
    depth: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.width % (2 * self.heads) == 0, "width is no even multiple of heads")

    @property
    def shape(self) -> decoder.Shape:
        from validation.payloads.decoder import Shape

        return Shape(self.vocabulary, self.width, self.heads, self.hidden, self.depth)


@dataclass(frozen=True)
class Record:
    """What every rank found in its training.

    losses      of its data, before each step
    exchanged   its own of the averaged gradient of the first step
    parameters  its own, after each step
    """

    losses: list[float] = field(default_factory=list)
    step_times: list[float] = field(default_factory=list)
    exchanged: list[torch.Tensor] = field(default_factory=list)
    parameters: list[list[torch.Tensor]] = field(default_factory=list)


@dataclass(frozen=True)
class Gathered:
    """How far the weights of a step were off: where they are the worst, in the rank `owner`'s
    shard, and in the rank's own. As parameters, and before the first step relative to themselves.
    """

    weights: float
    owner: int
    own: float


@dataclass(frozen=True)
class RankFigures:
    """How far one rank is from the reference.

    first_step   by name, what the first step gave; see the payloads
    steps        of each step, "parameters" after it: |parameters - reference| / |what the reference
                 moved until then|, the worst of the rank's tensors; where weights are gathered for
                 a step also those, see Gathered
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


def everyones(group: Group, mine: RankFigures) -> list[dict[str, Any]]:
    """The figures of all ranks, in rank order. Collective."""
    return group.gather(asdict(mine))


def report(
    group: Group,
    *,
    rows: Sequence[Mapping[str, Any]],
    curves: Sequence[Mapping[str, Any]],
    parameters: int,
    samples_per_step: int,
    step_times: Sequence[float],
    reference_step_s: float,
) -> dict[str, Any]:
    """Joins what each rank found. Collective: all ranks must call it.

    rows                 of all ranks, see everyones
    parameters           in the whole model
    step_times_s         of the slowest rank in each step; step_time_s_median of these
    samples_per_s        samples of all ranks / step_time_s_median
    reference_step_s     a step of the reference, on the rank where it is the shortest
    transport            over what the ranks spoke, see Group.transport
    """
    slowest = group.slowest(step_times)
    step_time = statistics.median(slowest)
    return {
        "steps": len(step_times),
        "curves": list(curves),
        "ranks": list(rows),
        "parameters": parameters,
        "samples_per_s": samples_per_step / step_time,
        "step_time_s_median": step_time,
        "step_times_s": slowest,
        "reference_step_s": min(group.gather(reference_step_s)),
        "transport": group.transport(),
    }


def figures(
    rank: int,
    *,
    first_step: dict[str, float],
    parameters: Sequence[Sequence[torch.Tensor]],
    reference: Sequence[Sequence[torch.Tensor]],
    moved: float | None = None,
    gathered: Sequence[Gathered] | None = None,
) -> RankFigures:
    """parameters: the rank's, after each step; reference: the same ones, first as they began.

    moved     how far the reference moved, where a rank may hold nothing of it
    gathered  of each step
    """
    from validation.payloads.reference import difference, movement

    start, *after = reference
    steps = [
        {"parameters": difference(mine, theirs, start)}
        for mine, theirs in zip(parameters, after, strict=True)
    ]
    if gathered is not None:
        for step, found in zip(steps, gathered, strict=True):
            step |= asdict(found)
    if moved is None:
        moved = movement(after[-1], start)
    return RankFigures(rank, first_step, steps, moved)


def copies(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """As they are now, on the CPU: what this rank has of them."""
    return [local(tensor).detach().cpu().clone() for tensor in tensors]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of a tensor that is spread over a mesh; any other is its own."""
    part: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


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
    yield from _drawn(config, (samples,))


def sequences(
    config: TransformerConfig, samples: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """As batches, [samples, tokens, width]. A target depends on its token and on the one before,
    which only attention can know.
    """
    yield from _drawn(config, (samples, config.tokens))


def _drawn(
    config: TrainingConfig, shape: tuple[int, ...]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(config.seed + 1)  # the weights have the seed itself
    teacher = torch.randn(config.width, config.width, generator=generator) / config.width**0.5
    for _ in range(config.steps):
        inputs = torch.randn(*shape, config.width, generator=generator)
        known = inputs.clone()
        if len(shape) > 1:
            known[:, 1:] += inputs[:, :-1]
        yield inputs, torch.tanh(known @ teacher)
