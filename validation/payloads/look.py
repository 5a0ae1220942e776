"""What one node shows of itself, for a declaration of a cluster that nobody has declared.

Standard library only. It measures nothing and judges nothing.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

from cluster import apart
from cluster.readers import infiniband, mounts
from validation.payloads import node
from validation.payloads.config import require_positive

# Filesystems of servers (fs/Kconfig of the kernel, and the vendors' clients).
SHARED = (
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "cifs", "smb3", "9p"),
    *(
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.sshfs",
        "wekafs",
        "panfs",
        "pvfs2",
        "vastnfs",
        "virtiofs",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """What the node is told.

    limit_s  how long the kernel may take about its ports, in seconds
    nonce    whose answer this is: it comes back in the document
    """

    limit_s: float = 10.0
    nonce: str = ""

    def __post_init__(self) -> None:
        require_positive(self, "limit_s")


def measure(config: Config) -> dict[str, Any]:
    """The node.

    node        see node.measure, with torch
    infiniband  `ports` (see infiniband.read) or the error in place of them
    dcgmi       where it is, or None
    shared      path and type of what file servers export
    """
    (ports,) = apart.run([infiniband.read], config.limit_s)
    return {
        "node": node.measure(node.Config(torch=True)),
        "infiniband": {"ports": ports.answer, "error": ports.error},
        "dcgmi": shutil.which("dcgmi"),
        "shared": [
            {"path": mount.point, "type": mount.type}
            for mount in mounts.parse(
                mounts.MOUNTINFO.read_text(encoding="utf-8", errors="replace").splitlines()
            )
            if mount.type in SHARED
        ],
    }
