"""What more GPUs brought: speed-up and efficiency against the first line of ddp.py's results."""

from __future__ import annotations

import json
import sys
from pathlib import Path

runs = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
first = runs[0]
print(f"{'GPUs':>4}  {'s/epoch':>8}  {'speed-up':>8}  {'efficiency':>10}")
for run in runs:
    speedup = first["seconds"] / run["seconds"]
    efficiency = speedup * first["gpus"] / run["gpus"]
    print(f"{run['gpus']:>4}  {run['seconds']:>8.2f}  {speedup:>8.2f}  {efficiency:>10.0%}")
