"""Sharded data parallel: what a training holds is spread over the GPUs, in four degrees.

    ddp     nothing: every GPU has all parameters, gradients and moments of the optimiser
    zero-1  the optimiser's moments
    zero-2  the gradients too: fully_shard, which keeps the parameters once it gathered them
    zero-3  the parameters too: fully_shard, which gathers each layer when its turn comes

The names are those of DeepSpeed. All four come to the same losses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from group import Group, apart, joined, whole
from transformer import Transformer, batch, loss_of

STEPS = 8


def prepared(way: str, group: Group) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Transformer().to(group.device)
    if way in {"ddp", "zero-1"}:
        replica = DistributedDataParallel(model, gradient_as_bucket_view=True)
        if way == "ddp":
            return replica, AdamW(replica.parameters(), lr=2e-3)
        return replica, ZeroRedundancyOptimizer(replica.parameters(), AdamW, lr=2e-3)
    mesh = init_device_mesh(group.device.type, (group.size,))
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, reshard_after_forward=way == "zero-3")
    return model, AdamW(model.parameters(), lr=2e-3)


def megabytes(tensors: Iterable[object]) -> float:
    """Of what this process has of them."""
    here = [tensor for tensor in tensors if isinstance(tensor, Tensor)]
    local = [getattr(tensor, "_local_tensor", tensor) for tensor in here]
    return sum(tensor.nbytes for tensor in local) / 1e6


def moments(optimiser: torch.optim.Optimizer) -> list[object]:
    inner = optimiser.optim if isinstance(optimiser, ZeroRedundancyOptimizer) else optimiser
    return [value for state in inner.state.values() for value in state.values()]


def train(way: str, group: Group) -> tuple[float, list[float], list[Tensor]]:
    """The last loss of all; what this process holds of parameters, gradients and moments; and the
    gradients of the first step.
    """
    model, optimiser = prepared(way, group)
    held = [0.0, 0.0, 0.0]
    first: list[Tensor] = []
    for step in range(STEPS):
        words, following = (tensor.to(group.device) for tensor in batch(16, step, group.rank))
        loss = loss_of(model(words), following)
        held[0] = megabytes(model.parameters())
        optimiser.zero_grad()
        loss.backward()
        held[1] = megabytes(parameter.grad for parameter in model.parameters())
        first = first or [whole(parameter.grad).clone() for parameter in model.parameters()]
        optimiser.step()
        held[2] = megabytes(moments(optimiser))
    return group.mean(loss), held, first


with joined() as group:
    group.say("MB that each process holds of")
    group.say("        process  parameters  gradients  optimiser  together    loss")
    together, losses, gradients = {}, {}, {}
    for way in ("ddp", "zero-1", "zero-2", "zero-3"):
        losses[way], held, gradients[way] = train(way, group)
        everyones = group.of_all(torch.tensor([held], device=group.device)).tolist()
        together[way] = max(sum(mine) for mine in everyones)
        for rank, mine in enumerate(everyones):
            columns = "  ".join(f"{value:>9.2f}" for value in (*mine, sum(mine)))
            group.say(f"{way:<8}{rank:>7}   {columns}  {losses[way]:>6.3f}")

    for way, loss in losses.items():
        far = apart(gradients[way], gradients["ddp"])
        assert far < 0.02, f"{way} has other gradients than ddp, by {far:.0%}"
        off = abs(loss / losses["ddp"] - 1)
        assert off < 0.01, f"{way} comes to another loss than ddp, by {off:.0%}"
    sizes = list(together.values())
    assert group.size == 1 or all(less < more for more, less in itertools.pairwise(sizes)), (
        "a further degree of sharding did not save memory"
    )
    group.say("the same gradients and losses, with less in each process")
