"""The limits of this process, which are those of a job's task, and its shared memory."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

from cluster.readers import mounts

UNLIMITED = "unlimited"
RESOURCES = {
    "memlock": resource.RLIMIT_MEMLOCK,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "stack": resource.RLIMIT_STACK,
}
SHM = Path("/dev/shm")
_MIB = 2**20


def read(shm: Path = SHM) -> dict[str, Any]:
    """Each limit's soft and hard value, a whole number (memlock and stack in bytes) or "unlimited".

    shm   of /dev/shm: why it cannot be used or None, the filesystem's type, its size and what is
          free, in MiB
    """
    limits: dict[str, Any] = {}
    for name, which in RESOURCES.items():
        soft, hard = resource.getrlimit(which)
        limits[name] = {"soft": _plain(soft), "hard": _plain(hard)}
    return {**limits, "shm": _shm(shm)}


def _plain(limit: int) -> int | str:
    return UNLIMITED if limit == resource.RLIM_INFINITY else limit


def _shm(path: Path) -> dict[str, Any]:
    answer: dict[str, Any] = {"path": str(path), "error": None, "type": "none"}
    try:
        space = os.statvfs(path)
    except OSError as error:
        return {**answer, "error": error.strerror, "size_mb": 0, "free_mb": 0}
    if not os.access(path, os.W_OK | os.X_OK):
        answer["error"] = "this user may not write there"
    return {
        **answer,
        "type": mounts.covering(str(path)).type,
        "size_mb": space.f_blocks * space.f_frsize // _MIB,
        "free_mb": space.f_bavail * space.f_frsize // _MIB,
    }
