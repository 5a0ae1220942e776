"""Fully sharded data parallel: parameters, gradients and optimiser are spread over all GPUs.

Each layer is gathered when its turn comes, so what a GPU must hold gets less with each GPU more.
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from group import joined
from transformer import Transformer, batch, loss_of

with joined() as group:
    mesh = init_device_mesh(group.device.type, (group.size,))
    torch.manual_seed(0)
    model = Transformer().to(group.device)
    whole = sum(parameter.numel() for parameter in model.parameters())
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    here = sum(parameter.to_local().numel() for parameter in model.parameters())
    group.say(f"{whole} parameters, {here} of them in this process")

    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for step in range(40):
        words, following = (tensor.to(group.device) for tensor in batch(16, step, group.rank))
        loss = loss_of(model(words), following)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 10 == 9:
            group.say(f"step {step + 1}: loss {loss.item():.3f}")
