"""The small words of Slurm's outputs: numbers, TRES, GRES. Pure functions.

All raise Nonsense for what they cannot read: what is misread would be a wrong value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from cluster.exporter import Failed

NOTHING = ("", "(null)", "N/A", "None")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_UNIT = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}


class Nonsense(Failed):
    """One sentence: what of an output cannot be read."""


def number(text: str) -> float:
    """Slurm writes 2048 as 2K in places.

    >>> number("2K")
    2048.0
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise Nonsense(f"{text[:40]!r} is no number")
    return float(match[1]) * _UNIT[match[2]]


def whole(value: Any) -> int:
    """A number of a JSON document, which is bare or {set, infinite, number}."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") is True else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Nonsense(f"{value!r} is no number")
    return value


def gpus_of_tres(text: str) -> int:
    """`cpu=4,mem=8G,gres/gpu=2,gres/gpu:h100=2` has two: the sum is there beside its parts."""
    counts: dict[str, int] = {}
    for item in text.split(","):
        name, _, count = item.partition("=")
        if name == "gres/gpu" or name.startswith("gres/gpu:"):
            counts[name] = int(number(count))
    return counts.pop("gres/gpu", sum(counts.values()))


def gpus_of_gres(text: str) -> int:
    """`gpu:h100:4(S:0-1),gpu:2,nic:1` has six, `gpu:h100:3(IDX:0-2)` three."""
    total = 0
    for item in re.sub(r"\([^()]*\)", "", text).split(","):
        name, *rest = item.split(":")
        if name == "gpu":
            total += int(number(rest[-1])) if rest else 1
    return total


def document(text: str, *names: str) -> Any:
    """What a command told as JSON, below these keys. An answer with errors is none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Nonsense(f"no JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise Nonsense("the JSON is no object")
    if errors := data.get("errors"):
        raise Nonsense(f"errors: {str(errors)[:200]}")
    for name in names:
        if not isinstance(data, Mapping) or name not in data:
            raise Nonsense(f"there is no {name}")
        data = data[name]
    return data
