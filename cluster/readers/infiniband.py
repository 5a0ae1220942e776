"""The ports of the node's RDMA devices, InfiniBand and RoCE, as the kernel shows them.

Which files there are is in the kernel's Documentation/ABI/stable/sysfs-class-infiniband, how they
are written in drivers/infiniband/core/sysfs.c: "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)",
"InfiniBand" or "Ethernet". They are handed on as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path("/sys/class/infiniband")
STATES = ("state", "phys_state", "rate", "link_layer")
COUNTERS = ("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors")


def read(root: Path = ROOT) -> list[dict[str, Any]]:
    """Every port of every device, in their order.

    A file that cannot be read is None, and `unread` says why; not every driver has all counters.
    """
    entries = []
    devices = sorted(root.iterdir()) if root.is_dir() else []
    for device in devices:
        ports = device / "ports"
        numbers = [port.name for port in ports.iterdir() if port.name.isdigit()]
        for number in sorted(numbers, key=int):
            entries.append(_port(device, ports / number))
    return entries


def _port(device: Path, port: Path) -> dict[str, Any]:
    unread: dict[str, str] = {}

    def text(path: Path) -> str | None:
        try:
            return path.read_text(encoding="ascii", errors="replace").strip()
        except OSError as error:
            unread[path.name] = error.strerror or str(error)
            return None

    def count(name: str) -> int | None:
        value = text(port / "counters" / name)
        return int(value) if value is not None and value.isdigit() else None

    return {
        "device": device.name,
        "port": int(port.name),
        **{name: text(port / name) for name in STATES},
        "firmware": text(device / "fw_ver"),
        "board": text(device / "board_id"),
        "counters": {name: count(name) for name in COUNTERS},
        "unread": unread,
    }
