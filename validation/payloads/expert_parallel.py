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

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from validation.payloads import ddp, training
from validation.payloads.chains import Chain, chains, meet
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch
    from torch.utils.hooks import RemovableHandle

    from validation.payloads.experts import Way
    from validation.payloads.reference import Reference
    from validation.payloads.transformer_reference import Shape

LONGEST_ROW = ddp.SLICES  # a rank has a slice of the data to itself


@dataclass(frozen=True, kw_only=True)
class Config(training.TransformerConfig):
    """batch: samples of each rank; depth: blocks; experts: of each rank in each block."""

    batch: int
    depth: int
    experts: int


@dataclass(frozen=True)
class Record(training.Record):
    """A rank keeps also

    entered     each block in the first step
    attended    what attention added, block by block
    arrived     tokens at its experts, block by block, rank by rank; `made` what became of them, and
                `returned` what came back for its own
    """

    entered: list[torch.Tensor] = field(default_factory=list)
    attended: list[torch.Tensor] = field(default_factory=list)
    arrived: list[torch.Tensor] = field(default_factory=list)
    made: list[torch.Tensor] = field(default_factory=list)
    returned: list[torch.Tensor] = field(default_factory=list)


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
    return training.report(
        group,
        rows=training.everyones(group, mine),
        curves=[
            training.curve(
                len(ranks), ddp.mean_losses(losses[ranks.start : ranks.stop]), references[ranks[0]]
            )
            for ranks in everyone
        ],
        parameters=sum(value.numel() for value in expected.parameters[0]),
        samples_per_step=config.batch * group.size,
        step_times=record.step_times,
        reference_step_s=expected.step_s,
    )


def routes(config: Config, ranks: int) -> torch.Tensor:
    """The expert of each token of a row of so many ranks, [samples, tokens]."""
    import torch

    generator = torch.Generator().manual_seed(config.seed + 2)
    samples = config.batch * ranks
    return torch.randint(config.experts * ranks, (samples, config.tokens), generator=generator)


def ways(config: Config, ranks: int) -> list[Way]:
    """The ways of each rank's tokens."""
    import torch

    from validation.payloads.experts import way

    by_rank = torch.split(routes(config, ranks).flatten(), config.batch * config.tokens)
    return [way(by_rank, place, config.experts) for place in range(ranks)]


@dataclass(frozen=True)
class Own:
    """What a rank has: of each block the attention's parameters, and those of its experts."""

    attention: list[Sequence[torch.Tensor]]
    experts: list[Sequence[torch.Tensor]]

    @property
    def all(self) -> list[torch.Tensor]:
        """In the order of the module's parameters."""
        blocks = zip(self.attention, self.experts, strict=True)
        return [value for block in blocks for part in block for value in part]


def own(config: Config, shape: Shape, values: Sequence[torch.Tensor], place: int) -> Own:
    """What a rank of a row has of the values of all parameters."""
    return _apart(values, len(shape.names), 2 * config.experts * place, 2 * config.experts)


def _apart(values: Sequence[torch.Tensor], of_block: int, first: int, count: int) -> Own:
    """Of values block by block: the attention's, and so many of the experts', from the first on."""
    from validation.payloads.transformer_reference import OF_ATTENTION

    starts = range(0, len(values), of_block)
    shared = len(OF_ATTENTION)
    return Own(
        [values[start : start + shared] for start in starts],
        [values[start + shared + first :][:count] for start in starts],
    )


def train_rank(config: Config, group: Group, row: Chain) -> Record:
    """This rank's part of the distributed training. Collective."""
    import torch

    from validation.payloads import transformer
    from validation.payloads.experts import expert_blocks
    from validation.payloads.transformer_reference import initial

    ranks, place = len(row.ranks), row.stage_of(group.rank)
    shape = config.shape(config.depth, experts=config.experts * ranks)
    values = own(config, shape, initial(config.seed, shape), place)
    model = make_model(config, group, shape, values, row)
    optimizer = training.sgd(model, config.lr)
    its = slice(place * config.batch, (place + 1) * config.batch)

    record = Record()
    watching = _watch_first_step(model, record)
    for inputs, targets in training.sequences(config, config.batch * ranks):
        group.watch.doing(f"training step {len(record.losses) + 1}")
        inputs, targets = inputs[its].to(group.device), targets[its].to(group.device)
        start = group.clock()
        optimizer.zero_grad()
        loss = transformer.squared_distances(model(inputs), targets).mean()
        loss = loss / (config.tokens * config.width)
        torch.autograd.backward(ddp.weight(place) * loss / ranks)
        for block in expert_blocks(model):
            for parameter in block.attention():
                add_up(parameter, row)
        if not record.losses:
            record.exchanged.extend(training.copies(training.gradients(model)))
            for hook in watching:
                hook.remove()
        optimizer.step()
        record.step_times.append(group.clock() - start)
        record.losses.append(loss.item())
        record.parameters.append(training.copies(model.parameters()))
    return record


def make_model(
    config: Config, group: Group, shape: Shape, values: Own, row: Chain
) -> torch.nn.Sequential:
    from torch import nn

    from validation.payloads.experts import ExpertBlock

    way = ways(config, len(row.ranks))[row.stage_of(group.rank)].to(group.device)
    blocks = zip(values.attention, values.experts, strict=True)
    return nn.Sequential(
        *(
            ExpertBlock(shape, attention, experts, way, row.group).to(group.device)
            for attention, experts in blocks
        )
    )


def add_up(parameter: torch.nn.Parameter, row: Chain) -> None:
    """The gradient of what every rank of a row has; each has divided its loss by their number."""
    import torch.distributed as dist

    assert parameter.grad is not None
    dist.all_reduce(parameter.grad, group=row.group)


def train_reference(config: Config, ranks: int) -> Reference:
    """The whole training of a row, without the group."""
    import torch

    from validation.payloads import reference, transformer_reference

    shape = config.shape(config.depth, experts=config.experts * ranks)
    mean = 1 / (config.batch * config.tokens * config.width)
    each = torch.tensor(ddp.shares(ranks), dtype=torch.float64) * mean
    return reference.train(
        transformer_reference.initial(config.seed, shape),
        transformer_reference.of(shape, routes(config, ranks)),
        training.sequences(config, config.batch * ranks),
        each.repeat_interleave(config.batch),
        config.lr,
    )


def figures(
    config: Config, rank: int, row: Chain, record: Record, expected: Reference
) -> training.RankFigures:
    from validation.payloads.reference import difference

    ranks, place = len(row.ranks), row.stage_of(rank)
    shape = config.shape(config.depth, experts=config.experts * ranks)
    everyones = ways(config, ranks)
    arrived, returned = owed(shape, everyones, place, expected.first.activations)
    received, sender = _worst(record.arrived, arrived, everyones[place].came)
    came_back, maker = _worst(record.returned, returned, everyones[place].sent)
    parts = [own(config, shape, values, place) for values in expected.parameters]
    gradient = own(config, shape, expected.first.gradients, place)
    count = 2 * config.experts
    got = _apart(record.exchanged, len(record.exchanged) // config.depth, 0, count)
    return training.figures(
        rank,
        first_step={
            "computed": difference(*_computed(shape, parts[0], everyones[place], record)),
            "received": received,
            "received_from": row.ranks[sender],
            "returned": came_back,
            "returned_from": row.ranks[maker],
            "exchanged": difference(
                itertools.chain(*got.attention), itertools.chain(*gradient.attention)
            ),
            "experts": difference(
                itertools.chain(*got.experts), itertools.chain(*gradient.experts)
            ),
        },
        parameters=record.parameters,
        reference=[part.all for part in parts],
    )


def owed(
    shape: Shape, everyones: Sequence[Way], place: int, activations: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Block by block, the tokens that must come to a rank's experts, and what must come back to it.

    activations: of all samples of the row, see transformer_reference.compute
    """
    import torch

    from validation.payloads.transformer_reference import norm

    arrived, returned = [], []
    for middle, left in zip(activations[1::2], activations[2::2], strict=True):
        tokens = norm(middle).flatten(0, 1).tensor_split(len(everyones))
        results = ((left - middle) / shape.scale).flatten(0, 1).tensor_split(len(everyones))
        leaving = [
            torch.split(each[way.order], way.sent)
            for each, way in zip(tokens, everyones, strict=True)
        ]
        arrived.append(torch.cat([parts[place] for parts in leaving]))
        returned.append(results[place][everyones[place].order])
    return arrived, returned


def _computed(
    shape: Shape, values: Own, way: Way, record: Record
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What attention and experts made of what entered them, and what they should have made."""
    from validation.payloads.transformer_reference import attend, norm, perceive

    made, right = list(record.attended), []
    for block, entered in zip(values.attention, record.entered, strict=True):
        block = [value.double() for value in block]
        right.append(
            attend(norm(entered.double()), shape.head_width, *block[:3]).joined @ block[3].T
        )
    for experts, arrived, left in zip(values.experts, record.arrived, record.made, strict=True):
        for number, its in enumerate(way.tokens):
            up, down = (value.double() for value in experts[2 * number :][:2])
            made.append(left[its])
            right.append(perceive(arrived[its].double(), up, down))
    return made, right


def _worst(
    actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], parts: list[int]
) -> tuple[float, int]:
    """How far tokens are off, block by block, and the place of the rank whose are the worst."""
    import torch

    from validation.payloads.reference import difference

    by_rank = [
        difference(mine, theirs)
        for mine, theirs in zip(
            zip(*(torch.split(each, parts) for each in actual), strict=True),
            zip(*(torch.split(each, parts) for each in expected), strict=True),
            strict=True,
        )
    ]
    worst = max(range(len(parts)), key=lambda place: (math.isnan(by_rank[place]), by_rank[place]))
    return by_rank[worst], worst


def _watch_first_step(model: torch.nn.Sequential, record: Record) -> list[RemovableHandle]:
    def keep(what: list[torch.Tensor]) -> Callable[..., None]:
        return lambda _, __, output: what.extend(training.copies([output]))

    from validation.payloads.experts import expert_blocks

    handles = []
    for block in expert_blocks(model):
        for module, what in (
            (block.output, record.attended),
            (block.arriving, record.arrived),
            (block.leaving, record.made),
            (block.returning, record.returned),
        ):
            handles.append(module.register_forward_hook(keep(what)))
        handles.append(
            block.register_forward_pre_hook(
                lambda _, inputs: record.entered.extend(training.copies(inputs))
            )
        )
    return handles
