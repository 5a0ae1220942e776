"""What a job finds on a node beside CPUs and GPUs: limits, shared filesystems, RDMA ports.

Standard library only, and quick: nothing is measured here. What a file server or a driver may not
answer is asked by processes of their own, all at once. The counters of RDMA ports are read twice,
two seconds apart, where there are any.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cluster import apart
from cluster.readers import infiniband
from validation.payloads import limits, shared_fs
from validation.payloads.config import require, require_positive

LOOK_S = 2.0
UPTIME = Path("/proc/uptime")


@dataclass(frozen=True, kw_only=True)
class Config:
    """What the node is told.

    limit_s              how long a filesystem, or the kernel about its ports, may take, in seconds
    shared_filesystems   absolute paths, as declared
    nonce                whose answer this is: it comes back in the document
    """

    limit_s: float = 10.0
    shared_filesystems: tuple[str, ...] = ()
    nonce: str = ""

    def __post_init__(self) -> None:
        require_positive(self, "limit_s")
        for path in self.shared_filesystems:
            require(path.startswith("/"), f"shared_filesystems has {path!r}, no absolute path")


def measure(config: Config) -> dict[str, Any]:
    """The state of the host.

    limits               see limits.read
    limit_s              how long each of the others was given
    shared_filesystems   one for each declared path: the path, `found` (see shared_fs.look) or the
                         error in place of it, and the seconds until then
    infiniband           `ports` (see infiniband.read), each with its counters of `later`, after so
                         many `seconds`, or the error in place of them; `uptime_s` of the node
    """
    paths = config.shared_filesystems
    looks = [partial(shared_fs.look, path) for path in paths]
    *shared, ports = apart.run([*looks, ports_twice], config.limit_s)
    found = ports.answer or {"ports": None, "seconds": None, "uptime_s": None}
    return {
        "limits": limits.read(),
        "limit_s": config.limit_s,
        "shared_filesystems": [
            {"path": path, "found": end.answer, "error": end.error, "seconds": end.seconds}
            for path, end in zip(paths, shared, strict=True)
        ],
        "infiniband": {**found, "error": ports.error},
    }


def ports_twice(root: Path = infiniband.ROOT, uptime: Path = UPTIME) -> dict[str, Any]:
    """The ports, and what their counters come to after LOOK_S; without ports nobody waits."""
    begin, ports = time.monotonic(), infiniband.read(root)
    if ports:
        time.sleep(LOOK_S)
    again = {(port["device"], port["port"]): port["counters"] for port in infiniband.read(root)}
    seconds = time.monotonic() - begin
    nothing: dict[str, Any] = dict.fromkeys(infiniband.COUNTERS)
    return {
        "ports": [
            {**port, "later": again.get((port["device"], port["port"]), nothing)} for port in ports
        ],
        "seconds": round(seconds, 3),
        "uptime_s": float(uptime.read_text(encoding="ascii").split()[0]),
    }
