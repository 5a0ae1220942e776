"""How a training grows: on one rank, one node, two nodes, four … and all of them, in one job.

The ranks of each size form a group and train while the others wait. Three things are timed, each
per step, as the slowest rank sees it:

    weak       DistributedDataParallel, as many sequences on each rank whatever their number
    strong     the same with as many sequences in all; not where there are more ranks than these
    pipeline   one stage of equal work on each rank, 1F1B; not beyond 16 ranks

On one rank nothing is exchanged: what the others are compared with. That a size really was so many
ranks is shown by a sum over its group, and that they trained together by their parameters, which
are equal bit by bit in the end although each rank has data of its own.

Ideal bubble of a pipeline of p stages with m microbatches: (p-1)/(m+p-1), see pipeline.py. Its
stages do as much as the one stage of a single rank, so that the step of a pipeline without any
other loss takes (m+p-1)/m times as long.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from validation.payloads import pipeline, training
from validation.payloads.chains import Chain
from validation.payloads.config import require
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Config(training.DecoderConfig):
    """The data of the model, and a pipeline.

    sequence        tokens of each sequence
    batch           sequences of each rank in a step, where the work grows with the ranks
    total           sequences of a step in all, where it does not
    microbatches    of a pipeline's step, of microbatch_size samples
    stage_layers    of a pipeline's stage, of stage_width units
    steps, warmup   that are timed, and that go before
    """

    sequence: int
    batch: int
    total: int
    microbatches: int
    microbatch_size: int
    stage_width: int
    stage_layers: int
    steps: int
    warmup: int
    lr: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.microbatches >= pipeline.LONGEST_CHAIN,
            f"microbatches is {self.microbatches}, fewer than {pipeline.LONGEST_CHAIN} stages",
        )


def sizes(ranks: int, nodes: int) -> list[int]:
    """How many ranks train together: one, those of one node, of two, of four … of all nodes.

    >>> sizes(24, 3), sizes(5, 5), sizes(1, 1)
    ([1, 8, 16, 24], [1, 2, 4, 5], [1])
    """
    each = ranks // nodes
    powers = [2**power for power in range(nodes.bit_length()) if 2**power < nodes]
    return sorted({1, *(each * count for count in powers), ranks})


def measure(config: Config, group: Group) -> dict[str, Any]:
    """Collective: all ranks must call it."""
    import torch.distributed as dist

    nodes = len(set(group.gather(group.itself.host)))
    counts = sizes(group.size, nodes)
    # Every rank makes all groups, in one order.
    groups = {count: dist.new_group(list(range(count))) for count in counts}
    rows = [_row(config, group, count, groups[count]) for count in counts]
    return {
        "nodes": nodes,
        "sizes": rows,
        "parameters": config.shape.parameters,
        "parameters_multiplied": config.shape.multiplied,
        "dtype": _dtype(group.device)[0],
        "transport": group.transport(),
    }


def _row(config: Config, group: Group, count: int, members: Any) -> dict[str, Any]:
    """All that is timed on the first `count` ranks. Collective for all, whoever takes part."""
    mine = group.rank < count
    group.watch.doing(f"counting {count} ranks")
    summed = _summed(group, members) if mine else 0
    in_step, losses = [], []

    def timed(what: str, work: Callable[[], Sequence[float]]) -> float:
        """The median step of the slowest rank. The others wait."""
        group.watch.doing(f"{what} on {count} ranks")
        everyones = group.gather(list(work()) if mine else [])
        group.watch.doing(f"{what} on {count} ranks is over")
        slowest = [max(step) for step in zip(*everyones[:count], strict=True)]
        return float(statistics.median(slowest))

    def data_parallel(sequences: int) -> Sequence[float]:
        times, digest, loss = _train(config, group, members, count, sequences)
        in_step.append(digest)
        losses.append(loss)
        return times

    from validation.payloads.decoder import share

    part = share(config.total, group.rank, count) if mine else slice(0, 0)
    weak = timed("weak scaling", lambda: data_parallel(config.batch))
    strong = (
        timed("strong scaling", lambda: data_parallel(part.stop - part.start))
        if count <= config.total
        else None
    )
    piped = (
        timed("a pipeline", lambda: _pipe(config, group, members, count))
        if count <= pipeline.LONGEST_CHAIN
        else None
    )
    digests = group.gather(in_step)[:count]
    return {
        "ranks": count,
        "took_part": sum(map(bool, digests)),
        "summed": group.gather(summed)[:count],
        "in_step": all(digest == digests[0] for digest in digests),
        "losses_finite": all(map(math.isfinite, _flat(group.gather(losses)[:count]))),
        "weak_s": weak,
        "strong_s": strong,
        "pipeline_s": piped,
    }


def _summed(group: Group, members: Any) -> int:
    """The sum of the numbers of the ranks in a group, counted from 1."""
    import torch
    import torch.distributed as dist

    number = torch.tensor([group.rank + 1], device=group.device)
    dist.all_reduce(number, group=members)
    return int(number.item())


def _train(
    config: Config, group: Group, members: Any, count: int, sequences: int
) -> tuple[list[float], str, float]:
    """Seconds of each step, what the parameters came to, and the last loss."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from validation.payloads import decoder
    from validation.payloads.language_model import LanguageModel

    weights = decoder.initial(config.seed, config.shape)
    model: torch.nn.Module = LanguageModel(config.shape, weights, config.sequence)
    model = model.to(group.device)
    replica = model
    if count > 1:
        devices = [group.device.index] if group.device.type == "cuda" else None
        replica = DistributedDataParallel(model, device_ids=devices, process_group=members)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    generator = torch.Generator().manual_seed(config.seed + 2 + group.rank)
    times, loss = [], torch.zeros(1)
    for step in range(config.warmup + config.steps):
        tokens = torch.randint(
            config.vocabulary, (sequences, config.sequence + 1), generator=generator
        ).to(group.device)
        start = group.clock()
        optimizer.zero_grad()
        parts = torch.split(tokens, config.batch)
        loss = _backward(replica, parts, group.device)
        optimizer.step()
        seconds = group.clock() - start
        if step >= config.warmup:
            times.append(seconds)
    return times, _digest(model), float(loss.item())


def _backward(replica: Any, parts: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """The gradient of the mean over the parts, exchanged with the last; the loss of that.

    What one rank has to do for all must not need more memory than its own share does.
    """
    import torch

    loss = torch.zeros(1)
    for number, part in enumerate(parts, 1):
        waits = number < len(parts) and hasattr(replica, "no_sync")
        with replica.no_sync() if waits else nullcontext():
            with _dtype(device)[1]():
                loss = replica(part) / len(parts)
            torch.autograd.backward(loss)
    return loss


def _dtype(device: torch.device) -> tuple[str, Callable[[], AbstractContextManager[Any]]]:
    """In what a training multiplies, and torch's context for it: what its tensor cores have."""
    import torch

    if device.type == "cpu":
        return "fp32", nullcontext
    bf16 = torch.cuda.get_device_capability(device) >= (8, 0)
    kind = torch.bfloat16 if bf16 else torch.float16
    return "bf16" if bf16 else "fp16", lambda: torch.autocast("cuda", dtype=kind)


def _digest(model: torch.nn.Module) -> str:
    return training.digest(model.parameters())


def _pipe(config: Config, group: Group, members: Any, count: int) -> list[float]:
    """Seconds of each step of a pipeline of so many stages."""
    import torch
    import torch.distributed as dist

    from validation.payloads import layers, reference

    # Point-to-point messages alone must not be the first thing a group does.
    dist.all_reduce(torch.zeros(1, device=group.device), group=members)
    settings = pipeline.Config(
        backend=config.backend,
        timeout_s=config.timeout_s,
        seed=config.seed,
        steps=config.warmup + config.steps,
        width=config.stage_width,
        lr=config.lr,
        microbatches=config.microbatches,
        microbatch_size=config.microbatch_size,
        layers_per_stage=config.stage_layers,
    )
    chain = Chain(range(count), members)
    values = reference.initial(config.seed + group.rank, config.stage_width, config.stage_layers)
    scale = reference.layer_scale(config.stage_layers * count)
    module = layers.stack(values, scale).to(group.device)
    stage = pipeline.make_stage(settings, group, chain, module)
    schedule = pipeline.make_schedule(settings, stage)
    times = []
    for number, (inputs, targets) in enumerate(training.batches(settings, settings.samples)):
        inputs, targets = inputs.to(group.device), targets.to(group.device)
        start = group.clock()
        module.zero_grad()
        pipeline.run_schedule(schedule, [stage], inputs, targets)
        seconds = group.clock() - start
        if number >= config.warmup:
            times.append(seconds)
    return times


def _flat(lists: Sequence[Sequence[float]]) -> list[float]:
    return [item for items in lists for item in items]
