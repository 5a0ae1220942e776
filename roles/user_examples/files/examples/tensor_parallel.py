"""Tensor parallel: each layer's matrices are cut, and every GPU works on its part of each layer.

All GPUs of one node see the same batch. It needs much of the network between them (NVLink).
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from group import joined
from transformer import Transformer, batch, loss_of

# The first matrix of a pair is cut by columns and the second by rows: one sum for both.
CUT = {
    **dict.fromkeys(("query", "key", "value", "up"), ColwiseParallel()),
    **dict.fromkeys(("out", "down"), RowwiseParallel()),
}

with joined() as group:
    mesh = init_device_mesh(group.device.type, (group.size,))
    torch.manual_seed(0)
    model = Transformer().to(group.device)
    words, following = (tensor.to(group.device) for tensor in batch(16, step=0))
    with torch.no_grad():
        alone = model(words)
    for block in model.blocks:
        parallelize_module(block, mesh, CUT)
        block.heads //= group.size
    with torch.no_grad():
        apart = (model(words) - alone).abs().max().item()
    group.say(f"cut over {group.size} processes the same comes out, but for {apart:.1e}")

    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-4, foreach=False)
    for step in range(40):
        words, following = (tensor.to(group.device) for tensor in batch(16, step))
        loss = loss_of(model(words), following)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 10 == 9:
            group.say(f"step {step + 1}: loss {loss.item():.3f}")
