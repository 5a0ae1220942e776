"""Train on one GPU, or on the CPU where there is none. Nothing here knows of other processes."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import Pictures, network

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=3e-3, help="learning rate")
options = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print(f"torch {torch.__version__} on {device}")

torch.manual_seed(0)
model = network().to(device)
optimiser = torch.optim.AdamW(model.parameters(), lr=options.rate)
loss_of = nn.CrossEntropyLoss()

losses = []
for epoch in range(3):
    total = 0.0
    for pictures, labels in DataLoader(Pictures(1280), batch_size=128, shuffle=True):
        loss = loss_of(model(pictures.to(device)), labels.to(device))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.item() * len(labels)
    losses.append(total / 1280)
    print(f"epoch {epoch}: loss {losses[-1]:.3f}", flush=True)
assert losses[-1] < losses[0], "the loss did not fall"

right = 0
with torch.no_grad():
    for pictures, labels in DataLoader(Pictures(640, first=100_000), batch_size=128):
        right += int((model(pictures.to(device)).argmax(1).cpu() == labels).sum())
print(f"accuracy on new pictures with rate {options.rate}: {right / 640:.3f}")
