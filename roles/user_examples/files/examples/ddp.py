"""Data parallel: every GPU has the whole model and its part of each batch.

The batch of all GPUs together stays as it is, so more GPUs do the same work in less time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from data import Pictures, network
from group import joined

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--pictures", type=int, default=2560)
parser.add_argument("--batch", type=int, default=256, help="of all GPUs together")
parser.add_argument("--result", type=Path, help="file to which a line of JSON is added")
options = parser.parse_args()

with joined() as group:
    pictures = Pictures(options.pictures)
    # Another part of the pictures for each process.
    sampler: DistributedSampler[tuple[Tensor, int]] = DistributedSampler(pictures)
    loader = DataLoader(pictures, batch_size=options.batch // group.size, sampler=sampler)
    torch.manual_seed(0)
    model = DistributedDataParallel(network().to(group.device))
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_of = nn.CrossEntropyLoss()

    seconds = []
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)  # shuffled anew
        begin, total = time.perf_counter(), torch.zeros((), device=group.device)
        for batch, labels in loader:
            loss = loss_of(model(batch.to(group.device)), labels.to(group.device))
            optimiser.zero_grad()
            loss.backward()  # here the gradients of all GPUs are averaged
            optimiser.step()
            total += loss.detach()
        dist.all_reduce(total)
        seconds.append(time.perf_counter() - begin)
        mean = total.item() / (len(loader) * group.size)
        group.say(
            f"epoch {epoch}: loss {mean:.3f}, {options.pictures / seconds[-1]:.0f} pictures/s"
        )

    if options.result and group.rank == 0:
        # Not the first epoch: it has the start of everything in it.
        line = {"gpus": group.size, "seconds": sum(seconds[1:]) / max(1, len(seconds[1:]))}
        with options.result.open("a") as file:
            file.write(json.dumps(line) + "\n")
