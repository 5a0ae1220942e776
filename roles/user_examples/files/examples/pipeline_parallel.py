"""Pipeline parallel: each GPU has some of the layers, and passes on what comes out of them.

A batch is cut into microbatches, so that all GPUs have something to do: while the second works on
the first microbatch, the first works on the second.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from group import joined
from transformer import Transformer, batch, loss_of

BATCH, MICROBATCHES = 32, 8


class Stage(nn.Module):
    """The layers of one process; the first has the embedding too, the last the head."""

    def __init__(self, whole: Transformer, rank: int, size: int) -> None:
        super().__init__()
        blocks = list(whole.blocks)
        share = range(rank * len(blocks) // size, (rank + 1) * len(blocks) // size)
        self.blocks = nn.ModuleList(blocks[number] for number in share)
        self.begin = whole if rank == 0 else None
        self.head = whole.head if rank == size - 1 else None
        if self.begin is not None:
            del self.begin.blocks

    def forward(self, x: Tensor) -> Tensor:
        if self.begin is not None:
            x = self.begin.word(x) + self.begin.place
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x.flatten(0, 1))


with joined() as group:
    torch.manual_seed(0)
    mine = Stage(Transformer(), group.rank, group.size).to(group.device)
    first, last = group.rank == 0, group.rank == group.size - 1
    stage = PipelineStage(mine, group.rank, group.size, group.device)
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=loss_of)
    optimiser = torch.optim.AdamW(mine.parameters(), lr=5e-4)
    print(f"process {group.rank} has {len(mine.blocks)} of the blocks", flush=True)
    for step in range(40):
        words, following = (tensor.to(group.device) for tensor in batch(BATCH, step))
        losses: list[Tensor] = []
        optimiser.zero_grad()
        if first:
            schedule.step(words, **({"target": following, "losses": losses} if last else {}))
        elif last:
            schedule.step(target=following, losses=losses)
        else:
            schedule.step()
        optimiser.step()
        if last and step % 10 == 9:
            mean = torch.stack(losses).mean().item()
            print(f"step {step + 1}: loss {mean:.3f}, {MICROBATCHES} microbatches", flush=True)
