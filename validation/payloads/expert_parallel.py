"""Expert-parallel training of a transformer: tokens travel to the experts, and back.

The ranks of a row have data of their own and a copy of the attention, whose gradients they average.
Of each block's experts every rank has some. An all_to_all takes each token to the rank of its
expert, another one brings back what the expert made of it; the backward pass takes the same ways.
As many tokens as come, go: the parts that two ranks exchange are of unequal length.

Which expert a token goes to is drawn, once (Roller et al., "Hash layers for large sparse models",
NeurIPS 2021): a router that learns would send a token elsewhere for a rounding error.

Neighbours in rank order form rows of at most 8, of nearly equal length, which train side by side,
each a model of its own. The figures of the first step:

    computed   the rank's attention, and its experts, from what entered them
    received   the tokens that came to its experts, and `received_from`, who sent the worst
    returned   what came back for its own tokens, and `returned_from`, whose experts made the worst
    exchanged  the averaged gradient of the attention
    experts    the gradient of its own experts
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from validation.payloads import ddp, training
from validation.payloads.chains import Chain, chains, meet
from validation.payloads.config import require_positive
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch

    from validation.payloads.experts import ExpertBlock
    from validation.payloads.reference import Reference
    from validation.payloads.transformer_reference import Shape

LONGEST_ROW = ddp.SLICES  # a rank has a slice of the data to itself


@dataclass(frozen=True, kw_only=True)
class Config(training.TransformerConfig):
    """batch: samples of each rank; depth: blocks; experts: of each rank in each block."""

    batch: int
    depth: int
    experts: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "batch", "depth", "experts")


@dataclass(frozen=True)
class Record:
    """What a rank found in its training.

    losses      of its data, before each step
    entered     each half of each block in the first step
    attended    what attention added, block by block
    arrived     tokens at its experts, block by block, rank by rank; `made` what became of them, and
                `returned` what came back for its own
    exchanged   its gradient of the first step, of all that it has
    parameters  all that it has, after each step
    """

    losses: list[float] = field(default_factory=list)
    step_times: list[float] = field(default_factory=list)
    entered: list[torch.Tensor] = field(default_factory=list)
    attended: list[torch.Tensor] = field(default_factory=list)
    arrived: list[torch.Tensor] = field(default_factory=list)
    made: list[torch.Tensor] = field(default_factory=list)
    returned: list[torch.Tensor] = field(default_factory=list)
    exchanged: list[torch.Tensor] = field(default_factory=list)
    parameters: list[list[torch.Tensor]] = field(default_factory=list)


def measure(config: Config, group: Group) -> dict[str, Any]:
    """See training.report. Collective: all ranks must call it."""
    everyone = chains(group.size, LONGEST_ROW)
    row = meet(group, everyone)
    record = train_rank(config, group, row)
    group.watch.doing("training the reference")
    expected = train_reference(config, len(row.ranks))
    group.watch.doing("comparing")
    mine = figures(config, group.rank, row, record, expected)
    losses, references = group.gather(record.losses), group.gather(list(expected.losses))
    return {
        **training.report(
            group,
            rows=training.everyones(group, mine),
            curves=[
                training.curve(
                    len(ranks),
                    [ddp.mean_loss([losses[rank][step] for rank in ranks]) for step in range(config.steps)],
                    references[ranks[0]],
                )
                for ranks in everyone
            ],
            parameters=sum(value.numel() for value in expected.parameters[0]),
            samples_per_step=config.batch * group.size,
            step_times=record.step_times,
            reference_step_s=expected.step_s,
        ),
    }
