"""Shards a model with torch's `fully_shard` (FSDP2), on GPUs and on CPUs.

On CPUs it needs help. Gloo's reduce-scatter takes a mean for a sum, without a word (pytorch#162338,
seen with 2.6, 2.7 and 2.8): from 2.8 on `fully_shard` can be told to add up and divide by itself,
before that the gradients are divided here. Before 2.8 a CPU's stream has no events; later ones do
nothing. And there a block that is gathered again for its backward pass counts as changed, so that
autograd refuses it: it stays gathered from its forward pass on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validation.payloads.group import release

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

MENDED = (2, 8, 0)


def shard(model: torch.nn.Sequential, mesh: DeviceMesh) -> None:
    """Each part of the model, then the whole. Collective."""
    import torch
    from torch.distributed.fsdp import fully_shard

    old = _old(mesh)
    if old:
        for name in ("record_event", "wait_event"):
            if not hasattr(torch.cpu.Stream, name):
                setattr(torch.cpu.Stream, name, lambda *_: None)
    for part in (*model, model):
        sharded: Any = fully_shard(part, mesh=mesh, reshard_after_forward=not old)
        if mesh.device_type == "cpu" and not old:
            sharded.set_force_sum_reduction_for_comms(True)


def average(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    """After a backward pass: makes gradients that were added up the mean that they should be."""
    if not _old(mesh):
        return
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= mesh.size()


def _old(mesh: DeviceMesh) -> bool:
    import torch

    return mesh.device_type == "cpu" and release(torch.__version__) < MENDED
