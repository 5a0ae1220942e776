"""Tensor parallel: each layer's matrices are cut, and every GPU works on its part of each layer.

All GPUs of one node see the same batch. It needs much of the network between them (NVLink).
"""

from __future__ import annotations

import copy

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from group import apart, joined, whole
from transformer import Transformer, batch, loss_of

# The first matrix of a pair is cut by columns and the second by rows: one sum for both.
CUT = {
    **dict.fromkeys(("query", "key", "value", "up"), ColwiseParallel()),
    **dict.fromkeys(("out", "down"), RowwiseParallel()),
}


def main() -> None:
    with joined() as group:
        mesh = init_device_mesh(group.device.type, (group.size,))
        torch.manual_seed(0)
        alone = Transformer().to(group.device)
        model = copy.deepcopy(alone)
        for block in model.blocks:
            parallelize_module(block, mesh, CUT)
            block.heads //= group.size

        optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, foreach=False)
        losses = []
        for step in range(40):
            words, following = (tensor.to(group.device) for tensor in batch(16, step))
            loss = loss_of(model(words), following)
            optimiser.zero_grad()
            loss.backward()
            if step == 0:
                # Proof: the whole model on one GPU has the same gradients.
                loss_of(alone(words), following).backward()
                far = apart(
                    (whole(parameter.grad) for parameter in model.parameters()),
                    (parameter.grad for parameter in alone.parameters()),
                )
                assert far < 0.02, f"gradients are {far:.0%} off those of one process"
                group.say(f"gradients equal those of one process, but for {far:.0e} of them")
            optimiser.step()
            losses.append(loss.item())
            if step % 10 == 9:
                group.say(f"step {step + 1}: loss {loss.item():.3f}")
        assert losses[-1] < losses[0] / 2, "the loss did not fall"


if __name__ == "__main__":
    main()
