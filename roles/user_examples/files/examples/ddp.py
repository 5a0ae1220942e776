"""Data parallel: every GPU has the whole model and its part of each batch.

The batch of all GPUs together stays as it is, so more GPUs do the same work in less time. With
--each every GPU has as large a batch, so more GPUs do more work in the same time.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from data import Pictures, network
from group import apart, joined

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--pictures", type=int, default=2560)
parser.add_argument("--batch", type=int, default=256, help="of all GPUs together")
parser.add_argument("--each", action="store_true", help="pictures and batch are those of each GPU")
parser.add_argument("--result", type=Path, help="file to which a line of JSON is added")
options = parser.parse_args()

with joined() as group:
    times = group.size if options.each else 1
    pictures = Pictures(times * options.pictures)
    # Another part of the pictures for each process.
    sampler: DistributedSampler[tuple[Tensor, int]] = DistributedSampler(pictures)
    batch_here = times * options.batch // group.size
    loader = DataLoader(pictures, batch_size=batch_here, sampler=sampler)
    torch.manual_seed(0)
    alone = network().to(group.device)
    model = DistributedDataParallel(copy.deepcopy(alone))
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_of = nn.CrossEntropyLoss()

    seconds, losses = [], []
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)  # shuffled anew
        begin, total = time.perf_counter(), torch.zeros((), device=group.device)
        for step, (batch, labels) in enumerate(loader):
            batch, labels = batch.to(group.device), labels.to(group.device)
            loss = loss_of(model(batch), labels)
            optimiser.zero_grad()
            loss.backward()  # here the gradients of all GPUs are averaged
            if epoch == step == 0:
                # Proof: one process with the whole batch has the same gradients.
                loss_of(alone(group.of_all(batch)), group.of_all(labels)).backward()
                far = apart(
                    (parameter.grad for parameter in model.parameters()),
                    (parameter.grad for parameter in alone.parameters()),
                )
                assert far < 0.02, f"gradients are {far:.0%} off those of one process"
                group.say(f"gradients equal those of one process, but for {far:.0e} of them")
            optimiser.step()
            total += loss.detach()
        losses.append(group.mean(total / len(loader)))
        seconds.append(time.perf_counter() - begin)
        speed = len(pictures) / seconds[-1]
        group.say(f"epoch {epoch}: loss {losses[-1]:.3f}, {speed:.0f} pictures/s")

    assert losses[-1] < losses[0], "the loss did not fall"
    everyones = group.of_all(torch.cat([item.detach().flatten() for item in model.parameters()]))
    same = (everyones.view(group.size, -1) == everyones.view(group.size, -1)[0]).all()
    assert same, "the GPUs ended with different models"

    if options.result and group.rank == 0:
        # The fastest, but for the first epoch: that one has the start of everything in it.
        line = {
            "ranks": group.size,
            "nodes": group.nodes,
            "pictures": len(pictures),
            "seconds": min(seconds[1:], default=seconds[0]),
        }
        with options.result.open("a") as file:
            file.write(json.dumps(line) + "\n")
