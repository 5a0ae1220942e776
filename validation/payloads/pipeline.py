"""Pipeline-parallel training, one stage per rank, compared with the same training in one process.

torch's own PipelineStage and Schedule1F1B do the work, one forward and one backward at a time. Each
microbatch's loss is its mean divided by the number of microbatches, so that adding up gradients
gives the mean over the batch. The schedule's own scaling is switched off where it exists: 2.6 has
none, later versions divide the gradients by default (`scale_grads`).

The reference runs the same microbatches in the same order and adds up in the same way; on one kind
of device its losses and parameters come out bit for bit equal. Every rank trains it whole and
compares its own stage with its own part of it.

Ideal bubble fraction of 1F1B with p stages and m microbatches: (p-1)/(m+p-1), the share of a step
in which a stage waits when all forwards and backwards take equally long and messages take no time
(Narayanan et al., "Efficient large-scale language model training on GPU clusters", SC 2021, give
(p-1)/m as the ratio to the ideal time; this is the same relative to the whole).
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from validation.payloads import training
from validation.payloads.config import require, require_positive
from validation.payloads.group import Group, release

if TYPE_CHECKING:
    import torch
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B


@dataclass(frozen=True, kw_only=True)
class Config(training.TrainingConfig):
    """microbatches: per step, of microbatch_size samples; layers_per_stage: of `width` units."""

    microbatches: int
    microbatch_size: int
    layers_per_stage: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "microbatches", "microbatch_size", "layers_per_stage")


def bubble_fraction(stages: int, microbatches: int) -> float:
    """Share of a step that an ideal 1F1B schedule leaves a stage idle."""
    return (stages - 1) / (microbatches + stages - 1)


def measure(config: Config, group: Group) -> dict[str, Any]:
    """See training.Measured. Collective: all ranks must call it.

    Raises CannotRun when there are fewer microbatches than stages: 1F1B cannot fill its pipeline.
    """
    require(
        config.microbatches >= group.size,
        f"microbatches is {config.microbatches}, fewer than the {group.size} stages",
    )
    reference = [stage.to(group.device) for stage in _stages(config, group.size)]
    module = copy.deepcopy(reference[group.rank])

    losses, step_times = _train_stage(config, group, module)
    reference_losses = _train_reference(config, group, reference)

    measured = training.summarise(
        group,
        losses=group.gather(losses)[-1],  # only the last stage sees the loss
        reference_losses=reference_losses,
        parameter_difference=training.parameter_difference(module, reference[group.rank]),
        parameters=sum(training.count_parameters(stage) for stage in reference),
        samples_per_step=config.microbatches * config.microbatch_size,
        step_times=step_times,
    )
    return {
        **asdict(measured),
        "stages": group.size,
        "microbatches": config.microbatches,
        "bubble_fraction_ideal": bubble_fraction(group.size, config.microbatches),
    }


def _stages(config: Config, count: int) -> list[torch.nn.Module]:
    """All stages' modules, [samples, width] to [samples, width], the same on every rank."""
    import torch
    from torch import nn

    torch.manual_seed(config.seed)
    return [
        nn.Sequential(*training.layers(config.width, config.layers_per_stage)) for _ in range(count)
    ]


def _loss(config: Config) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A microbatch's share of the batch's mean loss."""
    import torch

    def share(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(outputs, targets) / config.microbatches

    return share


def _train_stage(
    config: Config, group: Group, module: torch.nn.Module
) -> tuple[list[float], list[float]]:
    """Losses, on the last rank only, and this rank's seconds, per step; trains in place."""
    stage = make_stage(config, group, module)
    schedule = _schedule(config, stage)
    optimizer = training.sgd(module, config.lr)

    losses, seconds = [], []
    for inputs, targets in training.batches(config, config.microbatches * config.microbatch_size):
        inputs, targets = inputs.to(group.device), targets.to(group.device)
        start = group.clock()
        optimizer.zero_grad()
        shares = _step(schedule, stage, inputs, targets)
        optimizer.step()
        seconds.append(group.clock() - start)
        losses.append(math.fsum(share.item() for share in shares))
    return losses, seconds


def make_stage(config: Config, group: Group, module: torch.nn.Module) -> PipelineStage:
    """This rank's stage, in the class that its backend and torch need (see held_sends).

    The shapes are given, because working them out at run time sends pickled objects, for which
    torch needs numpy.
    """
    import torch
    from torch.distributed.pipelining import PipelineStage

    from validation.payloads.held_sends import MENDED, HeldSendsStage

    held = group.backend == "gloo" and release(torch.__version__) < MENDED
    shape = config.microbatch_size, config.width
    return (HeldSendsStage if held else PipelineStage)(
        module,
        stage_index=group.rank,
        num_stages=group.size,
        device=group.device,
        # gradients travel back for what requires them: not into the data
        input_args=torch.empty(shape, device="meta", requires_grad=group.rank > 0),
        output_args=torch.empty(shape, device="meta", requires_grad=True),
    )


def _schedule(config: Config, stage: PipelineStage) -> Schedule1F1B:
    from torch.distributed.pipelining import Schedule1F1B

    scales = "scale_grads" in inspect.signature(Schedule1F1B).parameters
    options: dict[str, Any] = {"scale_grads": False} if scales else {}
    return Schedule1F1B(stage, config.microbatches, loss_fn=_loss(config), **options)


def _step(
    schedule: Schedule1F1B, stage: PipelineStage, inputs: torch.Tensor, targets: torch.Tensor
) -> list[torch.Tensor]:
    """Runs all microbatches forward and backward; their shares of the loss on the last stage."""
    from validation.payloads.held_sends import HeldSendsStage

    shares: list[torch.Tensor] = []
    given = (inputs,) if stage.is_first else ()
    if stage.is_last:
        schedule.step(*given, target=targets, losses=shares)
    else:
        schedule.step(*given)
    if isinstance(stage, HeldSendsStage):
        stage.wait_for_sends()
    return shares


def _train_reference(config: Config, group: Group, stages: list[torch.nn.Module]) -> list[float]:
    """Mean loss over the batch, per step; trains all stages in place, without the group."""
    import torch

    model = torch.nn.Sequential(*stages)
    optimizer = training.sgd(model, config.lr)
    share_of = _loss(config)

    losses = []
    for inputs, targets in training.batches(config, config.microbatches * config.microbatch_size):
        optimizer.zero_grad()
        shares = []
        for microbatch, target in zip(
            torch.split(inputs.to(group.device), config.microbatch_size),
            torch.split(targets.to(group.device), config.microbatch_size),
            strict=True,
        ):
            share = share_of(model(microbatch), target)
            torch.autograd.backward(share)
            shares.append(share.item())
        optimizer.step()
        losses.append(math.fsum(shares))
    return losses
