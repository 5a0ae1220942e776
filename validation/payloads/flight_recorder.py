"""What torch remembers of a rank's last collectives (its flight recorder), when they hang.

torch has kept them since 2.5 for NCCL and, in the releases of today, for Gloo. The variable that
says how many was TORCH_NCCL_TRACE_BUFFER_SIZE (default 0: none) and is TORCH_FR_BUFFER_SIZE now
(default 2000), which warns where the old one is set (torch/csrc/distributed/c10d/FlightRecorder.hpp
of pytorch/pytorch). So is the function that tells them named by one word or the other.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any

ENTRIES = "128"  # the last ones are what a hang is about
_NEW, _OLD = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
# From this release on the new name alone is set. Before it either is understood or does nothing.
_NEW_SINCE = (2, 9, 0)
_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")


def request(environ: MutableMapping[str, str], release: tuple[int, int, int] | None) -> None:
    """Sets the recorder's size, whatever it was; before the group is made. None: not known."""
    environ[_NEW] = ENTRIES
    if release is not None and release >= _NEW_SINCE:
        environ.pop(_OLD, None)
    else:
        environ[_OLD] = ENTRIES


def dump() -> str | None:
    """What torch recorded, as JSON; None where it cannot tell."""
    with suppress(ImportError, AttributeError, RuntimeError, TypeError, ValueError):
        module = importlib.import_module("torch._C._distributed_c10d")
        tell: Any = next(getattr(module, name) for name in _DUMPS if hasattr(module, name))
        return bytes(tell(includeCollectives=True, onlyActive=False)).decode("utf-8", "replace")
    return None


def shortened(text: str) -> str:
    """The collectives that are not done, in a sentence; empty where nothing tells.

    Never raises.
    """
    with suppress(ValueError, RecursionError):
        document = json.loads(text)
        entries = document.get("entries") if isinstance(document, dict) else None
        if isinstance(entries, list):
            return _last([entry for entry in entries if isinstance(entry, dict)])
    return ""


def _last(entries: list[Mapping[str, Any]]) -> str:
    """What the rank waits for: the first that is not done, and how many came after it.

    Gloo's are never told to be completed; `retired` are those that torch does not watch any more.
    """
    open_ones = [entry for entry in entries if not _done(entry)]
    done = len(entries) - len(open_ones)
    if not entries:
        return ""
    if not open_ones:
        return f"waits for no collective; the last was {_named(entries[-1])}"
    later = f", {len(open_ones) - 1} after it" if len(open_ones) > 1 else ""
    before = f"; before it {_named(entries[done - 1])}" if done else ""
    first = open_ones[0]
    return f"waits for {_named(first)}, {first.get('state', 'of no known state')}{later}{before}"


def _done(entry: Mapping[str, Any]) -> bool:
    return entry.get("retired") is True or entry.get("state") == "completed"


def _named(entry: Mapping[str, Any]) -> str:
    """ "all_reduce number 7 of [[4]] Float"; point-to-point messages have numbers of their own."""
    name = str(entry.get("profiling_name", "?")).partition(":")[2] or "?"
    number = entry.get("p2p_seq_id" if entry.get("is_p2p") is True else "collective_seq_id", "?")
    types = entry.get("input_dtypes")
    kind = f" {types[0]}" if isinstance(types, list) and types else ""
    return f"{name} number {number} of {str(entry.get('input_sizes', '?'))[:40]}{kind}"
