"""What a node's disk and memory must reach: the part `host` of a model's file.

Nothing is shipped: neither depends on the GPU model. A site that knows its drives and its memory
modules says it in a file of its own.
"""

from collections.abc import Mapping
from typing import Any

from cluster import strict
from validation.model import Threshold
from validation.thresholds.sourced import SOURCED, least, speed

# By the name of the metric, as the checks have it.
NAMES = {
    "disk_write_gbs": "disk write",
    "disk_read_gbs": "disk read",
    "memory_copy_gbs": "memory copy",
}


_LIMIT = strict.table({"fail_below_gbs": speed, **SOURCED}, {"warn_below_gbs": speed})
READER = strict.described(
    strict.table({}, dict.fromkeys(NAMES, _LIMIT)),
    "a site's own: what a node's disk and memory must reach",
)


def problems(read: Mapping[str, Any] | None) -> list[str]:
    return [
        f"host.{name}.warn_below_gbs: lies below fail_below_gbs"
        for name, limit in (read or {}).items()
        if limit and limit["warn_below_gbs"] and limit["warn_below_gbs"] < limit["fail_below_gbs"]
    ]


def thresholds(read: Mapping[str, Any] | None, place: str) -> dict[str, Threshold]:
    """By the metric's name; `place` is the file's."""
    return {
        NAMES[name]: least(limit, "gbs", "GB/s", f"{place} host.{name}")
        for name, limit in (read or {}).items()
        if limit
    }
