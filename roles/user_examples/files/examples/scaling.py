"""What more GPUs brought, from the lines that ddp.py wrote: the columns of the validator's table.

weak efficiency: each GPU has as much work as one alone. strong efficiency: all share that work.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

WEAK, STRONG = "weak efficiency", "strong efficiency"
Size = tuple[int, int]  # ranks, nodes


def measured(lines: Iterable[str]) -> dict[Size, dict[str, float]]:
    """By size, from ddp.py's lines; the first is that of one rank."""
    runs = [json.loads(line) for line in lines]
    one = runs[0]
    assert one["ranks"] == 1, "the first line must be that of one rank"
    found: dict[Size, dict[str, float]] = {}
    for run in runs:
        size, ranks = (run["ranks"], run["nodes"]), run["ranks"]
        row = found.setdefault(size, {})
        if run["pictures"] == ranks * one["pictures"]:
            row["pictures per second"] = run["pictures"] / run["seconds"]
            row[WEAK] = one["seconds"] / run["seconds"]
        if run["pictures"] == one["pictures"]:
            row["speed-up"] = one["seconds"] / run["seconds"]
            row[STRONG] = one["seconds"] / (ranks * run["seconds"])
    return found


def validated(lines: Iterable[str]) -> dict[Size, dict[str, float]]:
    """The same efficiencies as the validator's check `scaling` measured them (results.jsonl)."""
    found: dict[Size, dict[str, float]] = {}
    for line in lines:
        result = json.loads(line)
        for metric in result["metrics"] if result["check"] == "scaling" else ():
            name = re.fullmatch(rf"({WEAK}|{STRONG}), (\d+) ranks? on (\d+) nodes?", metric["name"])
            if name:
                size = int(name[2]), int(name[3])
                found.setdefault(size, {})[f"{name[1]}, validator"] = metric["value"]
    return found


def table(rows: Mapping[Size, Mapping[str, float]]) -> str:
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    head = ["ranks", "nodes", *columns]
    lines = ["  ".join(head)]
    for (ranks, nodes), row in rows.items():
        cells = [
            str(ranks),
            str(nodes),
            *(f"{row[name]:.4g}" if name in row else "–" for name in columns),
        ]
        lines.append(
            "  ".join(f"{cell:>{len(name)}}" for name, cell in zip(head, cells, strict=True))
        )
    return "\n".join(lines)


parser = argparse.ArgumentParser()
parser.add_argument("result", type=Path, help="file that ddp.py --result wrote")
parser.add_argument("--validator", type=Path, help="results.jsonl of a run of the validator")
parser.add_argument("--floor", type=float, default=0, help="of the weak efficiency of all ranks")
options = parser.parse_args()

rows = measured(options.result.read_text().splitlines())
if options.validator:
    others = validated(options.validator.read_text().splitlines())
    if not rows.keys() & others.keys():
        sys.exit(f"{options.validator} has no result of the check scaling for these sizes")
    rows = {size: row | others.get(size, {}) for size, row in rows.items()}
print(table(rows))
last = rows[max(rows)][WEAK]
if last < options.floor:
    sys.exit(f"weak efficiency of all ranks is {last:.2g}, at least {options.floor:g} expected")
