"""Pipeline parallel: each GPU has some of the layers, and passes on what comes out of them.

A batch is cut into microbatches, so that all GPUs have something to do: while the second works on
the first microbatch, the first works on the second.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from group import apart, joined
from transformer import Transformer, batch, loss_of

BATCH, MICROBATCHES = 32, 8


class Stage(nn.Module):
    """The layers of one process; the first has the embedding too, the last the head."""

    def __init__(self, whole: Transformer, rank: int, size: int) -> None:
        super().__init__()
        blocks = list(whole.blocks)
        share = range(rank * len(blocks) // size, (rank + 1) * len(blocks) // size)
        self.blocks = nn.ModuleList(blocks[number] for number in share)
        self.word = whole.word if rank == 0 else None
        self.place = whole.place if rank == 0 else None
        self.head = whole.head if rank == size - 1 else None

    def forward(self, x: Tensor) -> Tensor:
        if self.word is not None:
            x = self.word(x) + self.place
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x.flatten(0, 1))


with joined() as group:
    torch.manual_seed(0)
    alone = Transformer().to(group.device)
    mine = Stage(copy.deepcopy(alone), group.rank, group.size)
    beside = Stage(alone, group.rank, group.size)  # the same part of the one that stays whole
    first, last = group.rank == 0, group.rank == group.size - 1
    stage = PipelineStage(mine, group.rank, group.size, group.device)
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=loss_of)
    optimiser = torch.optim.AdamW(mine.parameters(), lr=2e-3)
    print(f"process {group.rank} has {len(mine.blocks)} of the blocks", flush=True)
    begin = end = 0.0
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
        if step == 0:
            # Proof: the whole model on one GPU has the same gradients.
            loss_of(alone(words), following).backward()
            far = apart(
                (parameter.grad for parameter in mine.parameters()),
                (parameter.grad for parameter in beside.parameters()),
            )
            assert far < 0.02, f"gradients are {far:.0%} off those of one process"
            group.say(f"gradients equal those of one process, but for {far:.0e} of them")
        optimiser.step()
        if last:
            end = torch.stack(losses).mean().item()
            begin = begin or end
            if step % 10 == 9:
                print(f"step {step + 1}: loss {end:.3f}, {MICROBATCHES} microbatches", flush=True)
    assert not last or end < begin / 2, "the loss did not fall"
