"""Whether this process runs in a container of enroot, which is what pyxis starts tasks in.

Where slurmd has no pyxis, it warns (`SPANK plugin "pyxis" option "container-image" not found`) and
starts the task on the host all the same, so a task tells itself where it runs. Enroot 3 mounts a
lock file at the root of each of its containers, and knows them by that itself (src/runtime.sh in
NVIDIA/enroot). An image cannot bring it along: a file is no mount.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

LOCK = "/.lock"
MOUNTS = Path("/proc/self/mountinfo")


def system(mounts: Path = MOUNTS) -> str | None:
    """What the system of the container calls itself; None outside of a container."""
    lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    places = [fields[4] for line in lines if len(fields := line.split()) > 4]
    if LOCK not in places:
        return None
    with suppress(OSError):
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return "a system without a name"
