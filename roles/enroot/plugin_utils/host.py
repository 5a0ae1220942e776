"""What a host is, as the module enroot_host tells it, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Other machines' disks: layers and containers there are slow, and root is nobody on many of them.
NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "orangefs",
    }
    | {"panfs", "pvfs2", "smb3", "virtiofs", "wekafs"}
)
NETWORK_FUSE = ("fuse.ceph", "fuse.gluster", "fuse.sshfs", "fuse.s3fs", "fuse.juicefs")


def local(filesystem: str) -> bool:
    """Whether a filesystem is the node's own."""
    return filesystem not in NETWORK and not filesystem.startswith(NETWORK_FUSE)


def disk_problems(disk: Mapping[str, Any], least_gib: float) -> list[str]:
    """A sentence for each reason why containers cannot live on this disk. Sizes in GiB."""
    path, filesystem = disk["path"], disk["filesystem"]
    if not local(filesystem):
        return [
            f"enroot_scratch is {path}, which is on {filesystem}, a network filesystem; "
            "set it to a folder on a disk of the node."
        ]
    if disk["free_gib"] < least_gib:
        kind = " in memory" if filesystem == "tmpfs" else ""
        return [
            f"{path} has {disk['free_gib']:g} GiB free of {disk['size_gib']:g}{kind}, and "
            f"enroot_room_gib is {least_gib:g}, for the layers of an image, what is unpacked of "
            "them and the .sqsh file; set enroot_scratch to a folder on a bigger disk, make room "
            "there, or set enroot_room_gib to what your images need."
        ]
    return []


def room(disk: Mapping[str, Any], least_gib: float) -> str:
    """`enough`, or how much there is."""
    if not local(disk["filesystem"]):
        return f"on {disk['filesystem']}"
    return "enough" if disk["free_gib"] >= least_gib else f"{disk['free_gib']:g} GiB"


def apparmor(host: Mapping[str, Any]) -> str:
    """What enroot's AppArmor profile needs here: `disable`, `load` or nothing.

    Ubuntu 23.10 and later let only programs with a profile make user namespaces; there it must be
    loaded. Its first line is `abi <abi/4.0>`, which AppArmor of Ubuntu 22.04 and Debian 12 cannot
    parse; there it is disabled (https://github.com/NVIDIA/enroot/issues/201), and nothing is lost,
    because these restrict nobody. A host without AppArmor needs neither.
    """
    state = host["apparmor"]
    if not state["enabled"]:
        return ""
    if not state["abi"]:
        return "disable"
    return "load" if state["restricted"] else ""


def sysctls(host: Mapping[str, Any], most_namespaces: int) -> dict[str, int]:
    """The kernel settings that this host has and lets be written, with the values they need.

    `kernel.unprivileged_userns_clone` is Debian's and Ubuntu's own; others do not have it.
    """
    wanted = {
        "user.max_user_namespaces": most_namespaces,
        "user.max_mnt_namespaces": most_namespaces,
        "kernel.unprivileged_userns_clone": 1,
    }
    return {name: value for name, value in wanted.items() if name in host["sysctls"]}


def sysctls_amiss(host: Mapping[str, Any], most_namespaces: int) -> dict[str, int]:
    """Those of them that are lower now; more than is asked for is as good."""
    return {
        name: value
        for name, value in sysctls(host, most_namespaces).items()
        if not str(host["sysctls"][name]).isdigit() or int(host["sysctls"][name]) < value
    }
