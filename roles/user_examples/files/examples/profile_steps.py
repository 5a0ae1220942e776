"""Where a training's time goes: torch's profiler, as a table and as a trace for TensorBoard.

It looks at a few steps of many: one to settle, one to warm up, three that are recorded.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from transformer import Transformer, batch, loss_of

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path, help="for the trace")
options = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
activities = [ProfilerActivity.CPU]
if device.type == "cuda":
    activities.append(ProfilerActivity.CUDA)
torch.manual_seed(0)
model = Transformer().to(device)
optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
PARTS = ("data", "forward", "backward", "optimiser")
RECORDED = 3


def step(number: int) -> None:
    with record_function("data"):
        words, following = (tensor.to(device) for tensor in batch(16, number))
    with record_function("forward"):
        loss = loss_of(model(words), following)
    with record_function("backward"):
        optimiser.zero_grad()
        loss.backward()
    with record_function("optimiser"):
        optimiser.step()


def write(profiler: profile) -> None:
    options.folder.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(options.folder / "steps.pt.trace.json"))


with profile(
    activities=activities,
    schedule=schedule(wait=1, warmup=1, active=RECORDED),
    on_trace_ready=write,
    record_shapes=True,
    profile_memory=True,
) as profiler:
    for number in range(2 + RECORDED):
        step(number)
        profiler.step()

averages = {event.key: event for event in profiler.key_averages()}
print(f"torch {torch.__version__} on {device}; milliseconds of a step")
for part in PARTS:
    print(f"{part:<10}{averages[part].cpu_time_total / RECORDED / 1e3:>8.2f}")
own = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
took = {key: getattr(event, own) for key, event in averages.items() if key.startswith("aten::")}
print(f"\n{'operation':<40}{'calls':>8}{'ms':>10}")
for key in sorted(took, key=lambda key: -took[key])[:5]:
    calls, ms = averages[key].count // RECORDED, took[key] / RECORDED / 1e3
    print(f"{key:<40}{calls:>8}{ms:>10.2f}")

# Proof: each recorded step is in the trace, with its parts.
(trace,) = options.folder.glob("*.pt.trace.json")
events = [event.get("name") for event in json.loads(trace.read_text())["traceEvents"]]
for part in PARTS:
    assert events.count(part) >= RECORDED, f"the trace has {events.count(part)} times {part}"
print(f"\n{len(events)} events in {trace}")
