"""Data-parallel training over all ranks, compared with the same training in one process.

Each rank takes its own slice of the global batch. The slices are equally large, so the mean over
the ranks of the slices' mean gradients, which DistributedDataParallel computes, is the mean
gradient of the global batch: the replicas must follow the reference up to the rounding of float32.

Every rank trains the reference itself, on its own device, and compares its own replica with it. So
a replica that drifted shows wherever it is, and so does a device that computes wrongly.
"""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from validation.payloads import training
from validation.payloads.config import require_positive
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Config(training.TrainingConfig):
    """batch_per_rank: samples; depth: hidden layers of `width` units each."""

    batch_per_rank: int
    depth: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "batch_per_rank", "depth")


def measure(config: Config, group: Group) -> dict[str, Any]:
    """See training.Measured. Collective: all ranks must call it."""
    model = _model(config).to(group.device)
    reference = copy.deepcopy(model)

    slice_losses, step_times = _train_replica(config, group, model)
    reference_losses = _train_reference(config, group, reference)
    everyones = zip(*group.gather(slice_losses), strict=True)

    measured = training.summarise(
        group,
        losses=[math.fsum(step) / group.size for step in everyones],
        reference_losses=reference_losses,
        parameter_difference=training.parameter_difference(model, reference),
        parameters=training.count_parameters(model),
        samples_per_step=config.batch_per_rank * group.size,
        step_times=step_times,
    )
    return asdict(measured)


def _model(config: Config) -> torch.nn.Module:
    """An MLP, [samples, width] to [samples, width], the same on every rank."""
    import torch
    from torch import nn

    torch.manual_seed(config.seed)
    hidden = training.layers(config.width, config.depth)
    return nn.Sequential(*hidden, nn.Linear(config.width, config.width))


def _train_replica(
    config: Config, group: Group, model: torch.nn.Module
) -> tuple[list[float], list[float]]:
    """This rank's mean loss over its slice and its seconds, per step; trains `model` in place."""
    from torch.nn.parallel import DistributedDataParallel

    on_gpu = group.device.type == "cuda"
    replica = DistributedDataParallel(model, device_ids=[group.device.index] if on_gpu else None)
    optimizer = training.sgd(replica, config.lr)
    first = group.rank * config.batch_per_rank
    mine = slice(first, first + config.batch_per_rank)

    losses, seconds = [], []
    for inputs, targets in training.batches(config, config.batch_per_rank * group.size):
        inputs, targets = inputs[mine].to(group.device), targets[mine].to(group.device)
        start = group.clock()
        loss = _step(replica, optimizer, inputs, targets)
        seconds.append(group.clock() - start)
        losses.append(loss.item())
    return losses, seconds


def _train_reference(config: Config, group: Group, model: torch.nn.Module) -> list[float]:
    """Mean loss over the global batch, per step; trains `model` in place, without the group."""
    optimizer = training.sgd(model, config.lr)
    losses = []
    for inputs, targets in training.batches(config, config.batch_per_rank * group.size):
        inputs, targets = inputs.to(group.device), targets.to(group.device)
        losses.append(_step(model, optimizer, inputs, targets).item())
    return losses


def _step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    targets: torch.Tensor,
) -> torch.Tensor:
    """One step of training; the loss before it, averaged over the samples given."""
    import torch

    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    torch.autograd.backward(loss)
    optimizer.step()
    return loss.detach()
