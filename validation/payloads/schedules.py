"""A transformer trained as a pipeline under several schedules, each compared with the formula.

GPipe runs all forwards, then all backwards (Huang et al., arXiv:1811.06965); 1F1B alternates them
as soon as the pipeline is full; interleaved 1F1B gives each rank two stages, half as long, that lie
half a model apart (Narayanan et al., SC 2021). They train the same model on the same data from the
same beginning: what differs is who sends what to whom, and when.

Many ranks form several chains of at most 8, neighbours in rank order, which train side by side.
The figures of the first step are those of `pipeline`, for each stage:

    received   the activations that came from the stage before
    computed   what the stage made of them, compared with the formula on the very same input
    exchanged  the stage's gradient, which needs what came back from the stage behind

A rank alone has no use for two stages: there is nothing to interleave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from validation.payloads import pipeline, training
from validation.payloads.chains import Chain, chains, meet
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch
    from torch.distributed.pipelining import PipelineStage

    from validation.payloads.reference import Reference
    from validation.payloads.transformer_reference import Shape

LONGEST_CHAIN = 8

# Torch's class of each schedule, and how many stages a rank has under it.
SCHEDULES = {
    "gpipe": ("ScheduleGPipe", 1),
    "1f1b": ("Schedule1F1B", 1),
    "interleaved": ("ScheduleInterleaved1F1B", 2),
}
MOST_STAGES = 2  # of a rank


@dataclass(frozen=True, kw_only=True)
class Config(training.TransformerConfig):
    """microbatches_per_rank: of each rank of a chain, so that every schedule can fill its pipeline;
    microbatch_size: samples; blocks: of a stage, where a rank has two.
    """

    microbatches_per_rank: int
    microbatch_size: int
    blocks: int

    def microbatches(self, ranks: int) -> int:
        return self.microbatches_per_rank * ranks

    def samples(self, ranks: int) -> int:
        """Of a step of a chain."""
        return self.microbatches(ranks) * self.microbatch_size

    def depth(self, ranks: int) -> int:
        """Blocks of a chain's model."""
        return MOST_STAGES * self.blocks * ranks


@dataclass(frozen=True)
class Record:
    """What a stage found in its training.

    entered     the stage in the first step, [samples, tokens, width], and what left it
    exchanged   the stage's gradient of the first step
    parameters  after each step
    """

    entered: list[torch.Tensor] = field(default_factory=list)
    left: list[torch.Tensor] = field(default_factory=list)
    exchanged: list[torch.Tensor] = field(default_factory=list)
    parameters: list[list[torch.Tensor]] = field(default_factory=list)


@dataclass(frozen=True)
class Trained:
    """What a rank found: `losses` before each step, known to the last rank of a chain alone."""

    losses: list[float]
    step_times: list[float]
    stages: list[Record]


def names(ranks: int) -> tuple[str, ...]:
    """The schedules that so many ranks run."""
    return tuple(name for name, (_, stages) in SCHEDULES.items() if stages == 1 or ranks > 1)


def measure(config: Config, group: Group) -> dict[str, Any]:
    """For each schedule see training.report, with a row for each stage of each chain in turn.

    Collective: all ranks must call it.
    """
    everyone = chains(group.size, LONGEST_CHAIN)
    chain = meet(group, everyone)
    trained = {name: train(config, group, chain, name) for name in names(group.size)}
    group.watch.doing("training the reference")
    expected = train_reference(config, len(chain.ranks))
    group.watch.doing("comparing")
    reports = [
        {"schedule": name, **_report(config, group, everyone, chain, name, record, expected)}
        for name, record in trained.items()
    ]
    # The way they took is the same for all of them.
    return {"schedules": reports, "transport": [each.pop("transport") for each in reports][-1]}


def train(config: Config, group: Group, chain: Chain, name: str) -> Trained:
    """This rank's part of the training under a schedule. Collective."""
    from torch.distributed import pipelining

    from validation.payloads import transformer
    from validation.payloads.transformer_reference import initial

    ranks = len(chain.ranks)
    shape = config.shape(config.depth(ranks))
    values = initial(config.seed, shape)
    parts = stages_of(config, chain, group.rank, name)
    records = [Record() for _ in parts]
    modules = [
        transformer.stack(shape, _blocks(config, shape, values, name, part)).to(group.device)
        for part in parts
    ]
    stages = [
        make_stage(config, group, chain, module, part, name)
        for part, module in zip(parts, modules, strict=True)
    ]
    kind = getattr(pipelining, SCHEDULES[name][0])
    schedule = kind(
        stages if len(stages) > 1 else stages[0],
        config.microbatches(ranks),
        loss_fn=_loss(config, ranks),
        **pipeline.without_scaling(kind),
    )
    optimizers = [training.sgd(module, config.lr) for module in modules]
    watching = [
        module.register_forward_hook(_seen(record))
        for module, record in zip(modules, records, strict=True)
    ]

    trained = Trained([], [], records)
    for inputs, targets in training.sequences(config, config.samples(ranks)):
        group.watch.doing(f"training step {len(trained.losses) + 1} under {name}")
        inputs, targets = inputs.to(group.device), targets.to(group.device)
        start = group.clock()
        for optimizer in optimizers:
            optimizer.zero_grad()
        lost = pipeline.run_schedule(schedule, stages, inputs, targets)
        for hook in watching:
            hook.remove()
        if not trained.losses:
            for module, record in zip(modules, records, strict=True):
                record.exchanged.extend(training.copies(training.gradients(module)))
        for optimizer in optimizers:
            optimizer.step()
        trained.step_times.append(group.clock() - start)
        trained.losses.append(math.fsum(share.item() for share in lost))
        for module, record in zip(modules, records, strict=True):
            record.parameters.append(training.copies(module.parameters()))
    return trained


def stages_of(config: Config, chain: Chain, rank: int, name: str) -> list[int]:
    """Which stages a rank has, in the order of the chain's stages."""
    place, ranks = chain.stage_of(rank), len(chain.ranks)
    return [place + number * ranks for number in range(SCHEDULES[name][1])]


def make_stage(
    config: Config, group: Group, chain: Chain, module: torch.nn.Module, stage: int, name: str
) -> PipelineStage:
    """As pipeline.make_stage, for one of the rank's stages."""
    import torch

    shape = config.microbatch_size, config.tokens, config.width
    return pipeline.stage_class(group)(
        module,
        stage_index=stage,
        num_stages=len(chain.ranks) * SCHEDULES[name][1],
        device=group.device,
        input_args=torch.empty(shape, device="meta", requires_grad=stage > 0),
        output_args=torch.empty(shape, device="meta", requires_grad=True),
        group=chain.group,
    )


def train_reference(config: Config, ranks: int) -> Reference:
    """The whole training of a chain of so many ranks, without the group."""
    import torch

    from validation.payloads import reference, transformer_reference

    shape, samples = config.shape(config.depth(ranks)), config.samples(ranks)
    mean = 1 / (samples * config.tokens * config.width)
    return reference.train(
        transformer_reference.initial(config.seed, shape),
        transformer_reference.of(shape),
        training.sequences(config, samples),
        torch.full((samples,), mean, dtype=torch.float64),
        config.lr,
    )


def _report(
    config: Config,
    group: Group,
    everyone: Sequence[range],
    chain: Chain,
    name: str,
    trained: Trained,
    expected: Reference,
) -> dict[str, Any]:
    mine = [
        asdict(_figures(config, group.rank, chain, name, part, record, expected))
        for part, record in zip(
            stages_of(config, chain, group.rank, name), trained.stages, strict=True
        )
    ]
    everyones, losses = group.gather(mine), group.gather(trained.losses)
    references = group.gather(list(expected.losses))
    return training.report(
        group,
        rows=[
            everyones[rank][number]
            for ranks in everyone
            for number in range(SCHEDULES[name][1])
            for rank in ranks
        ],
        curves=[
            training.curve(len(ranks), losses[ranks[-1]], references[ranks[-1]])
            for ranks in everyone
        ],
        parameters=sum(value.numel() for value in expected.parameters[0]),
        samples_per_step=sum(config.samples(len(ranks)) for ranks in everyone),
        step_times=trained.step_times,
        reference_step_s=expected.step_s,
    )


def _figures(
    config: Config,
    rank: int,
    chain: Chain,
    name: str,
    part: int,
    record: Record,
    expected: Reference,
) -> training.RankFigures:
    import torch

    from validation.payloads.reference import difference
    from validation.payloads.transformer_reference import forward

    shape = config.shape(config.depth(len(chain.ranks)))
    own = [_blocks(config, shape, values, name, part) for values in expected.parameters]
    entered = torch.cat(record.entered)
    first = part * _blocks_per_stage(config, name)
    computed, _ = forward(own[0], shape, entered)
    return training.figures(
        rank,
        first_step={
            "received": difference([entered], [expected.first.activations[2 * first]]),
            "computed": difference([torch.cat(record.left)], computed[-1:]),
            "exchanged": difference(
                record.exchanged, _blocks(config, shape, expected.first.gradients, name, part)
            ),
        },
        parameters=record.parameters,
        reference=own,
    )


def _blocks_per_stage(config: Config, name: str) -> int:
    return config.blocks * MOST_STAGES // SCHEDULES[name][1]


def _blocks(
    config: Config, shape: Shape, values: Sequence[torch.Tensor], name: str, stage: int
) -> Sequence[torch.Tensor]:
    """A stage's among the values of all parameters."""
    count = _blocks_per_stage(config, name) * len(shape.names)
    return values[stage * count : (stage + 1) * count]


def _loss(config: Config, ranks: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A microbatch's share of the batch's mean loss."""
    from validation.payloads.transformer import squared_distances

    parts = config.tokens * config.width * config.microbatches(ranks)

    def share(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return squared_distances(outputs, targets).mean() / parts

    return share


def _seen(record: Record) -> Callable[..., None]:
    def watch(_: object, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        record.entered.extend(training.copies(inputs))
        record.left.extend(training.copies([output]))

    return watch
