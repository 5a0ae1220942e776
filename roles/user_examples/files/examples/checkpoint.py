"""A training that can be stopped at any time, and goes on where it was.

It writes a checkpoint every few steps, and when Slurm says that the end is near: SIGUSR1 some time
before the time limit (--signal), SIGTERM when a job that matters more needs the GPUs. Then it ends
with 75, on which checkpoint.sbatch has the job queued again.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from transformer import WORDS, Transformer, batch, loss_of

AGAIN = 75  # EX_TEMPFAIL of sysexits.h

parser = argparse.ArgumentParser()
parser.add_argument("checkpoint", type=Path)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
parser.add_argument("--pause", type=float, default=0, help="seconds to wait after each step")
options = parser.parse_args()

stop = False


def be_told(number: int, frame: object) -> None:
    global stop  # noqa: PLW0603 - a handler has no other way to say it
    stop = True


def listen(handler: Callable[[int, object], None] | signal.Handlers) -> None:
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, handler)


listen(be_told)

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
model = Transformer().to(device)
optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
begin = 0


def known() -> float:
    """The model's loss on words that are always the same."""
    with torch.no_grad():
        words, following = (tensor.to(device) for tensor in batch(16, step=0))
        return float(loss_of(model(words), following))


if options.checkpoint.exists():
    saved = torch.load(options.checkpoint, map_location=device, weights_only=True)
    model.load_state_dict(saved["model"])
    optimiser.load_state_dict(saved["optimiser"])
    begin = saved["step"]
    # Proof: it knows as much as the one that was saved.
    far = abs(known() - saved["known"])
    assert far < 1e-3, f"the model came back with another loss, {far:.3f} off"
print(f"from step {begin} of {options.steps}", flush=True)


def save(step: int) -> None:
    """Under another name first: a job that is killed here leaves the checkpoint before it."""
    new = options.checkpoint.with_suffix(".new")
    state = {
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "step": step,
        "known": known(),
    }
    with new.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(options.checkpoint)


loss = torch.zeros(())
for step in range(begin + 1, options.steps + 1):
    words, following = (tensor.to(device) for tensor in batch(16, step))
    loss = loss_of(model(words), following)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    time.sleep(options.pause)
    if stop or step % options.every == 0:
        save(step)
    if stop:
        listen(signal.SIG_IGN)
        print(f"stopped after step {step}, to go on from there", flush=True)
        sys.exit(AGAIN)
# Python itself ends with the default handlers, and a signal then would make a failure of a success.
listen(signal.SIG_IGN)
assert begin == options.steps or loss.item() < math.log(WORDS), "the training learned nothing"
print(f"done, loss {loss.item():.3f}")
