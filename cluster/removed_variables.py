"""Variables that are gone, and what to do instead: the table in cluster/removed_variables.yml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_suffix(".yml")


@cache
def sentences() -> Mapping[str, str]:
    """What preflight says of each, without its name. Raises ValueError; a test reads ours."""
    import yaml

    document = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return {name: _sentence(name, entry) for name, entry in document.items()}


def _sentence(name: str, entry: Mapping[str, Any]) -> str:
    ways = [key for key in ("now", "instead") if entry.get(key)]
    if len(ways) != 1 or set(entry) != {"since", *ways}:
        raise ValueError(f"{PATH.name}: {name} must have since, and either now or instead")
    if new := entry.get("now"):
        return f"is gone since {entry['since']}; rename it to {new}."
    return f"is gone since {entry['since']}; {entry['instead']}"
