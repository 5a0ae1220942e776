"""A transformer that is sharded over data-parallel ranks and sliced over tensor-parallel ones.

The ranks of a model stand in rows of `tensor` neighbours. The ranks of a row share each block's
heads and hidden units (torch's ColwiseParallel and RowwiseParallel), and have the same data; rows
have data of their own, as the ranks of `ddp` have. The ranks of a column shard among them what each
would hold (torch's `fully_shard`, FSDP2). A model has `tensor` times the heads and hidden units of
the configuration, so that every rank has as much work, whatever their number.

Every rank trains its model's reference whole, without the group, and compares its own part. The
figures, in the order in which they come about:

    weights     in each step: what the rank multiplied with, as it was gathered from its column
    computed    in the first step: its share of each sum over the row, from what entered it
    received    in the first step: what entered each half of each block
    exchanged   in the first step: its shard of the averaged gradient
    parameters  after each step: its shard

With the weights comes whose shard is the worst, and how far the rank's own is off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from validation.payloads import ddp, fully_shard, training
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.utils.hooks import RemovableHandle

    from validation.payloads.reference import Reference
    from validation.payloads.transformer_reference import Shape

# How a row shares each of a block's parameters: by what comes out of it, or by what enters it
# (Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3).
BY_OUTPUT = ("query", "key", "value", "up")
BY_INPUT = ("output", "down")
IN_ORDER = ("query", "key", "value", "output", "up", "down")


@dataclass(frozen=True, kw_only=True)
class Config(training.TransformerConfig):
    """batch: samples of each row; depth: blocks."""

    batch: int
    depth: int


@dataclass(frozen=True)
class Model:
    """Ranks that train one model: rows of `tensor` neighbours."""

    ranks: range
    tensor: int

    @property
    def data(self) -> int:
        """How many rows there are."""
        return len(self.ranks) // self.tensor


@dataclass(frozen=True)
class Cell:
    """A rank's place in its model.

    data_mesh    of its column, None where nothing is sharded
    tensor_mesh  of its row, None where nothing is sliced
    """

    rank: int
    model: Model
    data_mesh: DeviceMesh | None
    tensor_mesh: DeviceMesh | None

    @property
    def row(self) -> int:
        return (self.rank - self.model.ranks.start) // self.model.tensor

    @property
    def column(self) -> int:
        return (self.rank - self.model.ranks.start) % self.model.tensor

    def slices(self, shape: Shape, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What this rank multiplies with, of all parameters of the model."""
        names = shape.names * (len(values) // len(shape.names))
        return [
            value.tensor_split(self.model.tensor, dim=int(name in BY_INPUT))[self.column]
            for name, value in zip(names, values, strict=True)
        ]

    def shards(self, slices: Sequence[torch.Tensor], row: int) -> list[torch.Tensor]:
        """What the rank of a row holds of them: some lines of each, none where they are few."""
        counts = [math.ceil(len(value) / self.model.data) for value in slices]
        return [
            value[row * count : (row + 1) * count]
            for value, count in zip(slices, counts, strict=True)
        ]

    def owner(self, row: int) -> int:
        """The rank that holds a row's shards for this one."""
        return self.model.ranks[row * self.model.tensor + self.column]


@dataclass(frozen=True)
class Record(training.Record):
    """A rank's own are shards. It keeps also

    weights     that it multiplied with in each step
    entered     each half of each block in the first step
    shares      of each half's sum, that it added in the first step
    """

    weights: list[list[torch.Tensor]] = field(default_factory=list)
    entered: list[torch.Tensor] = field(default_factory=list)
    shares: list[torch.Tensor] = field(default_factory=list)


def measure(config: Config, group: Group, cell: Cell, models: Sequence[Model]) -> dict[str, Any]:
    """See training.report, and how the ranks stand. Collective: all ranks call it, with all models.

    rows     how many each model has, and `columns` how many ranks stand in each of them
    """
    from validation.payloads.reference import difference, movement

    shape = config.shape(config.depth, cell.model.tensor)
    record = train_cell(config, group, shape, cell)
    group.watch.doing("training the reference")
    expected = train_reference(config, shape, cell.model.data)
    group.watch.doing("comparing")
    slices = [cell.slices(shape, values) for values in expected.parameters]
    gradients = cell.shards(cell.slices(shape, expected.first.gradients), cell.row)
    its = samples_of(config, cell)
    entered = [each[its] for each in expected.first.activations[:-1]]
    return {
        **training.report(
            group,
            rows=training.everyones(
                group,
                training.figures(
                    group.rank,
                    first_step={
                        "computed": difference(
                            record.shares, shares(shape, slices[0], record.entered)
                        ),
                        "received": difference(record.entered, entered),
                        "exchanged": difference(record.exchanged, gradients),
                    },
                    parameters=record.parameters,
                    reference=[cell.shards(values, cell.row) for values in slices],
                    moved=movement(expected.parameters[-1], expected.parameters[0]),
                    gathered=[
                        gathered(cell, used, slices, step)
                        for step, used in enumerate(record.weights)
                    ],
                ),
            ),
            curves=_curves(group, models, record.losses, expected.losses),
            parameters=sum(value.numel() for value in expected.parameters[0]),
            samples_per_step=config.batch * sum(model.data for model in models),
            step_times=record.step_times,
            reference_step_s=expected.step_s,
        ),
        "rows": [model.data for model in models],
        "columns": [model.tensor for model in models],
    }


def samples_of(config: Config, cell: Cell) -> slice:
    """A row's among those of its model."""
    first = cell.row % min(cell.model.data, ddp.SLICES) * config.batch
    return slice(first, first + config.batch)


def train_cell(config: Config, group: Group, shape: Shape, cell: Cell) -> Record:
    """This rank's part of the distributed training. Collective."""
    import torch

    from validation.payloads import transformer
    from validation.payloads.transformer_reference import initial

    model = transformer.stack(shape, initial(config.seed, shape)).to(group.device)
    record = Record()
    watching = _watch_first_step(model, record)
    used: list[torch.Tensor] = []
    _watch_weights(model, used)
    split(model, cell)
    optimizer = training.sgd(model, config.lr)
    its = samples_of(config, cell)

    for inputs, targets in sequences(config, cell.model.data):
        group.watch.doing(f"training step {len(record.losses) + 1}")
        inputs, targets = inputs[its].to(group.device), targets[its].to(group.device)
        start = group.clock()
        optimizer.zero_grad()
        loss = transformer.squared_distances(model(inputs), targets).mean()
        loss = loss / (config.tokens * config.width)
        torch.autograd.backward(ddp.weight(cell.row) * loss)
        if cell.data_mesh is not None:
            fully_shard.average(model, cell.data_mesh)
        if not record.losses:
            record.exchanged.extend(training.copies(training.gradients(model)))
            for hook in watching:
                hook.remove()
        optimizer.step()
        record.step_times.append(group.clock() - start)
        record.losses.append(loss.item())
        record.weights.append(training.copies(used))
        used.clear()
        record.parameters.append(training.copies(model.parameters()))
    return record


def split(model: torch.nn.Sequential, cell: Cell) -> None:
    """Slices each block over its row, then shards it over its column. Collective."""
    if cell.tensor_mesh is not None:
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            ParallelStyle,
            RowwiseParallel,
            parallelize_module,
        )

        plan: dict[str, ParallelStyle] = {}
        plan |= dict.fromkeys(BY_OUTPUT, ColwiseParallel())
        plan |= dict.fromkeys(BY_INPUT, RowwiseParallel())
        for block in model:
            parallelize_module(block, cell.tensor_mesh, plan)
    if cell.data_mesh is not None:
        fully_shard.shard(model, cell.data_mesh)


def sequences(config: Config, rows: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return training.sequences(config, config.batch * min(rows, ddp.SLICES))


def train_reference(config: Config, shape: Shape, rows: int) -> Reference:
    """A model's whole training, without the group."""
    import torch

    from validation.payloads import reference, transformer_reference

    mean = 1 / (config.batch * config.tokens * config.width)
    each = torch.tensor(ddp.shares(rows), dtype=torch.float64) * mean
    return reference.train(
        transformer_reference.initial(config.seed, shape),
        transformer_reference.of(shape),
        sequences(config, rows),
        each.repeat_interleave(config.batch),
        config.lr,
    )


def shares(
    shape: Shape, slices: Sequence[torch.Tensor], entered: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """What a rank with these slices must add to each half's sum, where this entered the halves."""
    from validation.payloads.transformer_reference import attend, norm, perceive

    owed: list[torch.Tensor] = []
    for number in range(shape.depth):
        block = [value.double() for value in shape.block(slices, number)]
        first, second = (norm(each.double()) for each in entered[2 * number :][:2])
        owed.append(attend(first, shape.head_width, *block[:3]).joined @ block[3].T)
        owed.append(perceive(second, *block[4:]))
    return owed


def gathered(
    cell: Cell, used: Sequence[torch.Tensor], slices: Sequence[Sequence[torch.Tensor]], step: int
) -> training.Gathered:
    """How far the weights of a step are off, see training.Gathered."""
    from validation.payloads.reference import difference

    def off(row: int) -> float:
        origin = cell.shards(slices[0], row) if step else None
        return difference(cell.shards(used, row), cell.shards(slices[step], row), origin)

    by_row = list(map(off, range(cell.model.data)))
    worst = max(range(len(by_row)), key=lambda row: (math.isnan(by_row[row]), by_row[row]))
    return training.Gathered(by_row[worst], cell.owner(worst), by_row[cell.row])


def _curves(
    group: Group, models: Sequence[Model], losses: list[float], references: Sequence[float]
) -> list[dict[str, Any]]:
    """Each model's losses: the mean over its rows, each weighed, of the mean over their ranks."""
    everyones, expected = group.gather(losses), group.gather(list(references))
    curves = []
    for model in models:
        means = [
            math.fsum(
                ddp.weight(number // model.tensor) * everyones[rank][step]
                for number, rank in enumerate(model.ranks)
            )
            / len(model.ranks)
            for step in range(len(losses))
        ]
        curves.append(training.curve(len(model.ranks), means, expected[model.ranks[0]]))
    return curves


def _watch_first_step(model: torch.nn.Sequential, record: Record) -> list[RemovableHandle]:
    """Records what enters each half, and what this rank adds to it."""

    def enters(_: object, inputs: tuple[torch.Tensor, ...]) -> None:
        record.entered.extend(training.copies(inputs))

    def adds(_: object, __: object, output: torch.Tensor) -> None:
        record.shares.extend(training.copies([output]))

    from validation.payloads.transformer import blocks_of

    handles = []
    for block in blocks_of(model):
        for norm, last in (
            (block.before_attention, block.output),
            (block.before_perceptron, block.down),
        ):
            handles.append(norm.register_forward_pre_hook(enters))
            handles.append(last.register_forward_hook(adds))
    return handles


def _watch_weights(model: torch.nn.Sequential, used: list[torch.Tensor]) -> None:
    """Keeps what each layer multiplies with."""

    from validation.payloads.transformer import blocks_of

    def multiplies(layer: torch.nn.Linear, _: object) -> None:
        used.append(training.local(layer.weight).detach().clone())

    for block in blocks_of(model):
        for name in IN_ORDER:
            getattr(block, name).register_forward_pre_hook(multiplies)
