"""Limits of a filesystem's quota, as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# In the order in which setquota takes them.
LIMITS = ("blocks_soft", "blocks_hard", "files_soft", "files_hard")
_UNITS = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4}
_SIZE = re.compile(rf"(\d+)([{''.join(_UNITS)}])i?B?")


def _value(limit: str, written: Any) -> int | None:
    """KiB, or a number of files; 0 is no limit, and None cannot be read."""
    text = str(written).strip()
    if limit.startswith("files"):
        return int(text) if text.isdigit() else None
    if text == "0":
        return 0
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _UNITS[match[2]] if match else None


def quota_problems(quota: Mapping[str, Any]) -> Iterator[str]:
    """Clauses: limits that are none, and soft ones above their hard ones."""
    values = {}
    for limit, written in quota.items():
        if limit not in LIMITS:
            yield f"there is no limit {limit}; they are {', '.join(LIMITS)}"
        elif (value := _value(limit, written)) is None:
            wanted = "a number" if limit.startswith("files") else "a size such as 100G"
            yield f"{limit} is {written!r}; set it to {wanted}, or to 0 for no limit"
        else:
            values[limit] = value
    for what in ("blocks", "files"):
        soft, hard = values.get(f"{what}_soft", 0), values.get(f"{what}_hard", 0)
        if hard and soft > hard:
            yield f"{what}_soft is above {what}_hard, so it would never be told"


def quota_values(quota: Mapping[str, Any]) -> list[int]:
    """The limits in KiB and files, in setquota's order; an empty list if none was written."""
    if not quota:
        return []
    return [_value(limit, quota.get(limit, 0)) or 0 for limit in LIMITS]
