"""What is counted or compared, and does not depend on the GPU: the part `limits` of common.yml.

Each limit has a name, a side and a unit, which the program knows, and a number, which the file says
with its source. A site's file replaces the limits that it gives.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster import strict
from validation.model import Threshold
from validation.thresholds.sourced import SOURCED, speed


@dataclass(frozen=True, slots=True)
class Kind:
    """What a limit is about. `low` is one that a value must reach, else it must not be exceeded."""

    what: str
    unit: str
    low: bool = False

    @property
    def side(self) -> str:
        return "below" if self.low else "above"


# Shares are of 1. The first ten are of one GPU, the next of one port.
KINDS: Mapping[str, Kind] = {
    "gpu_corrected_errors": Kind("corrected ECC errors since the driver was loaded", "errors"),
    "gpu_corrected_errors_life": Kind("corrected ECC errors in the board's life", "errors"),
    "gpu_corrected_sram_errors": Kind("corrected ECC errors of caches and registers", "errors"),
    "gpu_remapped_rows": Kind("memory rows that were remapped", "rows"),
    "gpu_retired_pages": Kind("memory pages that are retired", "pages"),
    "gpu_app_clock_share": Kind("application clock, of the board's default", "", low=True),
    "gpu_bar1_share": Kind("BAR1, of the board's memory", "", low=True),
    "gpu_load_clock_share": Kind("highest SM clock at work, of the board's most", "", low=True),
    "gpu_sustained_share": Kind("speed after some seconds of load, of that before", "", low=True),
    "gpu_heat_share": Kind("answers under load in which heat held a GPU's clocks back", ""),
    "ib_symbol_errors_per_hour": Kind("symbol errors an hour, since the node started", "1/h"),
    "ib_link_downed": Kind("times that the link went down", ""),
    "ib_link_error_recovery": Kind("times that the link recovered by training again", ""),
    "ib_new_symbol_errors": Kind("symbol errors while the node was looked at", "errors"),
    "ib_new_link_downed": Kind("times that the link went down while the node was looked at", ""),
    "core_speed_share": Kind("speed of a core, of the median of its node", "", low=True),
    "core_gbs": Kind("SHA-256 of the median core of a node", "GB/s", low=True),
    "alike_host_share": Kind("a host's speed, of the median of alike nodes", "", low=True),
    "disk_gbs": Kind("a local disk, written or read", "GB/s", low=True),
    "memory_copy_gbs": Kind("copies in the host's memory, all cores together", "GB/s", low=True),
    "tcp_lost_share": Kind("TCP segments that were lost between two nodes", ""),
    "outside_cpu_share": Kind("CPUs that processes outside of Slurm ask for", ""),
}


# A smaller share would find nothing, and a count without a bound neither.
LEAST_SHARE, MOST_COUNT = 0.01, 1e12


def _between(least: float, most: float) -> strict.Form:
    def read(value: Any, where: str, problems: strict.Problems) -> float | None:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and least <= value <= most:
            return float(value)
        problems.append(f"{where}: expected a number from {least:g} to {most:g}, found {value!r}")
        return None

    return strict.Form(read, {"type": "number", "minimum": least, "maximum": most})


def _number(name: str, kind: Kind) -> strict.Reader:
    if name.endswith("_share"):
        return _between(LEAST_SHARE, 1)
    return speed if kind.low else _between(0, MOST_COUNT)


def _reader(name: str, kind: Kind) -> strict.Reader:
    number = _number(name, kind)
    limit = strict.table({f"fail_{kind.side}": number, **SOURCED}, {f"warn_{kind.side}": number})
    return strict.described(limit, f"{kind.what}{f', in {kind.unit}' if kind.unit else ''}")


READER = strict.table({}, {name: _reader(name, kind) for name, kind in KINDS.items()})


def problems(read: Mapping[str, Any] | None) -> Iterator[str]:
    """What is wrong with limits that have the right form."""
    for name, limit in (read or {}).items():
        if limit is None:
            continue
        side = KINDS[name].side
        fail, warn = limit[f"fail_{side}"], limit[f"warn_{side}"]
        if warn is not None and (warn < fail if KINDS[name].low else warn > fail):
            yield f"limits.{name}.warn_{side}: lies beyond fail_{side}"


def thresholds(read: Mapping[str, Any] | None, place: str) -> dict[str, Threshold]:
    """By name; `place` is the file's."""
    return {
        name: _threshold(KINDS[name], limit, f"{place} limits.{name}")
        for name, limit in (read or {}).items()
        if limit is not None
    }


def _threshold(kind: Kind, limit: Mapping[str, Any], place: str) -> Threshold:
    return Threshold(
        "≥" if kind.low else "≤",
        limit[f"fail_{kind.side}"],
        kind.unit,
        limit["provenance"],
        limit["source"],
        limit[f"warn_{kind.side}"],
        limit["date"],
        place,
    )
