"""Data-parallel training over all ranks, compared with the same training by formula.

There are K slices of data, K the number of ranks but at most 8. Rank r trains on slice r mod K and
weighs its loss by w(r), a number that no other rank has. DistributedDataParallel averages the
ranks' gradients, and gradients add up, so the replicas must follow the reference that trains on
the K slices with the weights of their ranks added together: a rank whose share is missing, doubled
or scaled changes the sum, and the work for the reference does not grow with the ranks.

The figures of the first step: `computed`, the rank's own gradient before it was averaged, and
`exchanged`, the average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from validation.payloads import training
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch

    from validation.payloads.reference import Pass, Reference

SLICES = 8  # at most
GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples modulo 1 never repeat and spread evenly


@dataclass(frozen=True, kw_only=True)
class Config(training.TrainingConfig):
    """batch_per_rank: samples; depth: layers of `width` units each."""

    batch_per_rank: int
    depth: int


@dataclass(frozen=True)
class Replica(training.Record):
    """computed: its own gradient of the first step, before it was averaged."""

    computed: list[torch.Tensor] = field(default_factory=list)


def weight(rank: int) -> float:
    """Of the loss of a rank: between 1 and 2, each another."""
    return 1 + (rank * GOLDEN) % 1


def shares(ranks: int) -> list[float]:
    """What each slice counts in the mean over the ranks."""
    count = min(ranks, SLICES)
    return [math.fsum(map(weight, range(k, ranks, count))) / ranks for k in range(count)]


def mean_losses(losses: Sequence[Sequence[float]]) -> list[float]:
    """Of each step, over the ranks with their weights; losses: of each rank."""
    return [
        math.fsum(weight(rank) * loss for rank, loss in enumerate(step)) / len(losses)
        for step in zip(*losses, strict=True)
    ]


def measure(config: Config, group: Group) -> dict[str, Any]:
    """See training.report. Collective: all ranks must call it."""
    from validation.payloads.reference import difference

    with group.at_work():
        record = train_replica(config, group)
    group.watch.doing("training the reference")
    expected, alone = train_reference(config, group.rank, group.size)
    group.watch.doing("comparing")
    losses = mean_losses(group.gather(record.losses))
    return training.report(
        group,
        rows=training.everyones(
            group,
            training.figures(
                group.rank,
                first_step={
                    "computed": difference(record.computed, alone.gradients),
                    "exchanged": difference(record.exchanged, expected.first.gradients),
                },
                parameters=record.parameters,
                reference=expected.parameters,
            ),
        ),
        curves=[training.curve(group.size, losses, expected.losses)],
        parameters=sum(parameter.numel() for parameter in expected.parameters[0]),
        samples_per_step=config.batch_per_rank * group.size,
        step_times=record.step_times,
        reference_step_s=expected.step_s,
    )


def train_replica(config: Config, group: Group) -> Replica:
    """This rank's part of the distributed training. Collective."""
    import torch

    from validation.payloads import layers, reference

    values = reference.initial(config.seed, config.width, config.depth)
    model = layers.stack(values, reference.layer_scale(config.depth)).to(group.device)
    replica = make_replica(model, group)
    optimizer = training.sgd(replica, config.lr)
    count = min(group.size, SLICES)
    first = group.rank % count * config.batch_per_rank
    mine = slice(first, first + config.batch_per_rank)

    record = Replica()
    for inputs, targets in training.batches(config, config.batch_per_rank * count):
        group.watch.doing(f"training step {len(record.losses) + 1}")
        inputs, targets = inputs[mine].to(group.device), targets[mine].to(group.device)
        start = group.clock()
        optimizer.zero_grad()
        loss = layers.squared_distances(replica(inputs), targets).mean() / config.width
        weighted = weight(group.rank) * loss
        if not record.losses:
            # what autograd gives for this rank alone, before anything is exchanged
            own = torch.autograd.grad(weighted, list(model.parameters()), retain_graph=True)
            record.computed.extend(training.copies(own))
        torch.autograd.backward(weighted)
        if not record.losses:
            record.exchanged.extend(training.copies(training.gradients(model)))
        optimizer.step()
        record.step_times.append(group.clock() - start)
        record.losses.append(loss.item())
        record.parameters.append(training.copies(model.parameters()))
    return record


def make_replica(model: torch.nn.Module, group: Group) -> torch.nn.Module:
    from torch.nn.parallel import DistributedDataParallel

    on_gpu = group.device.type == "cuda"
    return DistributedDataParallel(model, device_ids=[group.device.index] if on_gpu else None)


def train_reference(config: Config, rank: int, ranks: int) -> tuple[Reference, Pass]:
    """The whole training, and the first step of one rank alone; without the group."""
    import torch

    from validation.payloads import reference

    counts = shares(ranks)
    samples = config.batch_per_rank * len(counts)
    mean = 1 / (config.batch_per_rank * config.width)
    values = reference.initial(config.seed, config.width, config.depth)
    scale = reference.layer_scale(config.depth)

    def weights(of_slices: Sequence[float]) -> torch.Tensor:
        each = torch.tensor(of_slices, dtype=torch.float64) * mean
        return each.repeat_interleave(config.batch_per_rank)

    everyone = reference.train(
        values,
        reference.of_layers(scale),
        training.batches(config, samples),
        weights(counts),
        config.lr,
    )
    mine = [weight(rank) if k == rank % len(counts) else 0.0 for k in range(len(counts))]
    inputs, targets = next(training.batches(config, samples))
    return everyone, reference.compute(values, scale, inputs, targets, weights(mine))
