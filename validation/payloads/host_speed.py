"""What disk, memory and cores of the node do: what goes there comes back right, in what time.

Standard library only. Each part is a process of its own with a hard time limit, one after another,
because a copy on all cores would slow the disk's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from cluster import apart
from validation.payloads import cores, disk, host_memory
from validation.payloads.config import require_positive
from validation.payloads.node import memory_limit_mb

_SHARE = 4  # of the memory that is available, a quarter at most is used


@dataclass(frozen=True, kw_only=True)
class Config:
    """What the node is told.

    disk, memory, cores   which of them are asked for
    disk_bytes            how much is written at most
    disk_s                how long it is written at most, in seconds; reading it back takes its own
    memory_s              how long is copied
    limit_s               the hard limit of each part
    nonce                 whose answer this is: it comes back in the document
    """

    disk: bool
    memory: bool
    cores: bool
    disk_bytes: int
    disk_s: float
    memory_s: float
    limit_s: float
    nonce: str = ""

    def __post_init__(self) -> None:
        require_positive(self, "disk_bytes", "disk_s", "memory_s", "limit_s")


def measure(config: Config) -> dict[str, Any]:
    """What disk, memory and cores did; None for what was not asked.

    Each has `found` (see `measure` of disk, host_memory and cores), or the error in place of it.
    """
    most = host_memory.available_bytes(memory_limit_mb()) // _SHARE
    return {
        "disk": _part(
            config.disk, partial(disk.measure, config.disk_bytes, config.disk_s, most), config
        ),
        "memory": _part(config.memory, partial(host_memory.measure, config.memory_s, most), config),
        "cores": _part(config.cores, cores.measure, config),
    }


def _part(enabled: bool, work: apart.Work, config: Config) -> dict[str, Any] | None:
    if not enabled:
        return None
    (end,) = apart.run([work], config.limit_s)
    return {"found": end.answer, "error": end.error}
