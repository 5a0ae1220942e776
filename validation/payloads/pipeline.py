"""Pipeline-parallel training, one stage per rank, compared with the same training by formula.

torch's own PipelineStage and Schedule1F1B do the work, one forward and one backward at a time. Each
microbatch's loss is its mean divided by the number of microbatches, so that adding up gradients
gives the mean over the batch. The schedule's own scaling is switched off where it exists: 2.6 has
none, later versions divide the gradients by default (`scale_grads`).

Many ranks form several chains of at most 16 stages, neighbours in rank order, which train side by
side on the same data. Every rank trains its chain's reference whole and compares its own stage with
its part of it, so the work does not grow with the number of ranks.

The figures of the first step: `received`, the activations that came from the stage before;
`computed`, what the stage made of them, compared with the formula on the very same input;
`exchanged`, the stage's gradient, which needs what came back from the stage behind.

Ideal bubble fraction of 1F1B with p stages and m microbatches: (p-1)/(m+p-1), the share of a step
in which a stage waits when all forwards and backwards take equally long and messages take no time
(Narayanan et al., "Efficient large-scale language model training on GPU clusters", SC 2021, give
(p-1)/m as the ratio to the ideal time; this is the same relative to the whole).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from validation.payloads import training
from validation.payloads.chains import Chain, chains, meet
from validation.payloads.config import require
from validation.payloads.group import Group, release

if TYPE_CHECKING:
    import torch
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    from validation.payloads.reference import Reference

LONGEST_CHAIN = 16


@dataclass(frozen=True, kw_only=True)
class Config(training.TrainingConfig):
    """microbatches: per step, of microbatch_size samples; layers_per_stage: of `width` units."""

    microbatches: int
    microbatch_size: int
    layers_per_stage: int

    @property
    def samples(self) -> int:
        """Of one step of one chain."""
        return self.microbatches * self.microbatch_size

    def parameters_of(self, stage: int) -> slice:
        """A stage's weights and biases among those of its chain."""
        count = 2 * self.layers_per_stage
        return slice(stage * count, (stage + 1) * count)


@dataclass(frozen=True)
class Stage(training.Record):
    """What entered the stage in the first step, [samples, width], and what left it; only the last
    stage sees the losses.
    """

    entered: list[torch.Tensor] = field(default_factory=list)
    left: list[torch.Tensor] = field(default_factory=list)


def bubble_fraction(stages: int, microbatches: int) -> float:
    """Share of a step that an ideal 1F1B schedule leaves a stage idle."""
    return (stages - 1) / (microbatches + stages - 1)


def measure(config: Config, group: Group) -> dict[str, Any]:
    """See training.report. Collective: all ranks must call it.

    Raises CannotRun when there are fewer microbatches than stages: 1F1B cannot fill its pipeline.
    """
    from validation.payloads.reference import difference, forward, initial, layer_scale

    everyone = chains(group.size, LONGEST_CHAIN)
    stages = len(everyone[0])
    require(
        config.microbatches >= stages,
        f"microbatches is {config.microbatches}, fewer than the {stages} stages",
    )
    chain = meet(group, everyone)
    count, stage = len(chain.ranks), chain.stage_of(group.rank)
    values = initial(config.seed, config.width, count * config.layers_per_stage)
    scale = layer_scale(count * config.layers_per_stage)
    own = values[config.parameters_of(stage)]

    with group.at_work():
        record = train_stage(config, group, chain, own, scale)
    group.watch.doing("training the reference")
    expected = train_reference(config, count, stage)
    received = expected.first.activations[stage * config.layers_per_stage]
    gradients = expected.first.gradients[config.parameters_of(stage)]
    computed = forward(own, scale, record.entered[0])[-1]
    group.watch.doing("comparing")
    losses = group.gather(record.losses)
    references = group.gather(list(expected.losses))
    return {
        **training.report(
            group,
            rows=training.everyones(
                group,
                training.figures(
                    group.rank,
                    first_step={
                        "received": difference(record.entered, [received]),
                        "computed": difference(record.left, [computed]),
                        "exchanged": difference(record.exchanged, gradients),
                    },
                    parameters=record.parameters,
                    reference=expected.parameters,
                ),
            ),
            curves=[
                training.curve(len(ranks), losses[ranks[-1]], references[ranks[-1]])
                for ranks in everyone
            ],
            parameters=sum(value.numel() for value in values),
            samples_per_step=config.samples * len(everyone),
            step_times=record.step_times,
            reference_step_s=expected.step_s,
        ),
        "microbatches": config.microbatches,
        "bubble_fraction_ideal": bubble_fraction(stages, config.microbatches),
    }


def _loss(config: Config) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A microbatch's share of the batch's mean loss."""
    from validation.payloads.layers import squared_distances

    def share(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return squared_distances(outputs, targets).mean() / config.width / config.microbatches

    return share


def train_stage(
    config: Config, group: Group, chain: Chain, values: tuple[torch.Tensor, ...], scale: float
) -> Stage:
    """This rank's part of the distributed training. Collective."""
    import torch

    from validation.payloads import layers

    module = layers.stack(values, scale).to(group.device)
    entered: list[torch.Tensor] = []
    left: list[torch.Tensor] = []

    def watch(_: object, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        entered.extend(training.copies(inputs))
        left.extend(training.copies([output]))

    stage = make_stage(config, group, chain, module)
    schedule = make_schedule(config, stage)
    optimizer = training.sgd(module, config.lr)
    watching = module.register_forward_hook(watch)

    record = Stage()
    for inputs, targets in training.batches(config, config.samples):
        group.watch.doing(f"training step {len(record.losses) + 1}")
        inputs, targets = inputs.to(group.device), targets.to(group.device)
        start = group.clock()
        optimizer.zero_grad()
        shares = run_schedule(schedule, [stage], inputs, targets)
        if not record.parameters:
            watching.remove()
            record.entered.append(torch.cat(entered))
            record.left.append(torch.cat(left))
            record.exchanged.extend(training.copies(training.gradients(module)))
        optimizer.step()
        record.step_times.append(group.clock() - start)
        record.losses.append(math.fsum(share.item() for share in shares))
        record.parameters.append(training.copies(module.parameters()))
    return record


def train_reference(config: Config, stages: int, stage: int) -> Reference:
    """A chain's whole training, without the group; it keeps the parameters of one stage."""
    import torch

    from validation.payloads import reference

    depth = stages * config.layers_per_stage
    mean = 1 / (config.samples * config.width)
    return reference.train(
        reference.initial(config.seed, config.width, depth),
        reference.of_layers(reference.layer_scale(depth)),
        training.batches(config, config.samples),
        torch.full((config.samples,), mean, dtype=torch.float64),
        config.lr,
        kept=config.parameters_of(stage),
    )


def make_stage(
    config: Config, group: Group, chain: Chain, module: torch.nn.Module
) -> PipelineStage:
    """This rank's stage. The shapes are given, because working them out at run time sends pickled
    objects, for which torch needs numpy.
    """
    import torch

    stage = chain.stage_of(group.rank)
    shape = config.microbatch_size, config.width
    return stage_class(group)(
        module,
        stage_index=stage,
        num_stages=len(chain.ranks),
        device=group.device,
        # gradients travel back for what requires them: not into the data
        input_args=torch.empty(shape, device="meta", requires_grad=stage > 0),
        output_args=torch.empty(shape, device="meta", requires_grad=True),
        group=chain.group,
    )


def stage_class(group: Group) -> type[PipelineStage]:
    """The class of stages that the backend and torch need, see held_sends."""
    import torch
    from torch.distributed.pipelining import PipelineStage

    from validation.payloads.held_sends import MENDED, HeldSendsStage

    held = group.backend == "gloo" and release(torch.__version__) < MENDED
    return HeldSendsStage if held else PipelineStage


def without_scaling(schedule: type[Any]) -> dict[str, Any]:
    """The option that leaves gradients as they are, where a schedule would scale them."""
    scales = "scale_grads" in inspect.signature(schedule).parameters
    return {"scale_grads": False} if scales else {}


def make_schedule(config: Config, stage: PipelineStage) -> Schedule1F1B:
    from torch.distributed.pipelining import Schedule1F1B

    return Schedule1F1B(
        stage, config.microbatches, loss_fn=_loss(config), **without_scaling(Schedule1F1B)
    )


def run_schedule(
    schedule: Any, stages: Sequence[PipelineStage], inputs: torch.Tensor, targets: torch.Tensor
) -> list[torch.Tensor]:
    """Runs all microbatches forward and backward through this rank's stages; their shares of the
    loss where the last stage is.
    """
    from validation.payloads.held_sends import HeldSendsStage

    shares: list[torch.Tensor] = []
    arguments = (inputs,) if any(stage.is_first for stage in stages) else ()
    if any(stage.is_last for stage in stages):
        schedule.step(*arguments, target=targets, losses=shares)
    else:
        schedule.step(*arguments)
    for stage in stages:
        if isinstance(stage, HeldSendsStage):
            stage.wait_for_sends()
    return shares
