"""A PCI bus as sysfs shows it, in a folder: switches, GPUs and network cards.

0000:16:01.0                     a port of the processor
  0000:17:00.0                   a switch, and its ports
    0000:18:00.0   0000:19:00.0  a GPU
    0000:18:01.0   0000:1a:00.0  a network card
0000:26:01.0                     another port of the processor
  0000:27:00.0                   a card without a switch
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PORT, SWITCH, OTHER_PORT = "0000:16:01.0", "0000:17:00.0", "0000:26:01.0"
TO_GPU, TO_CARD = "0000:18:00.0", "0000:18:01.0"
GPU, CARD, OTHER_CARD = "0000:19:00.0", "0000:1a:00.0", "0000:27:00.0"

ROOT_OF = "sys/devices/pci0000:16"
WAYS = {
    PORT: (),
    SWITCH: (PORT,),
    TO_GPU: (PORT, SWITCH),
    TO_CARD: (PORT, SWITCH),
    GPU: (PORT, SWITCH, TO_GPU),
    CARD: (PORT, SWITCH, TO_CARD),
    OTHER_PORT: (),
    OTHER_CARD: (OTHER_PORT,),
}
CLASSES = {GPU: "0x030200", CARD: "0x020700", OTHER_CARD: "0x020000"}
VENDORS = {GPU: "0x10de", CARD: "0x15b3", OTHER_CARD: "0x8086"}

# As Linux sets them where it wants isolation (pci_enable_acs): SV, RR, CR, UF.
ISOLATING = 0x1D


def space(control: int | None, size: int = 4096) -> bytes:
    """A configuration space with AER, then ACS and its control word; None: without ACS."""
    data = bytearray(size)
    if size > 256:
        after = 0x148 if control is not None else 0
        data[0x100:0x104] = (after << 20 | 2 << 16 | 0x0001).to_bytes(4, "little")
        if control is not None:
            data[0x148:0x14C] = (1 << 16 | 0x000D).to_bytes(4, "little")
            data[0x14C:0x150] = (control << 16 | 0x1F).to_bytes(4, "little")
    return bytes(data)


def build(
    root: Path,
    acs: Mapping[str, int | None] | None = None,
    domain: str = "identity",
    without: tuple[str, ...] = (),
) -> Path:
    """Makes the bus below `root`; `acs` has the control words that are not 0."""
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    for address, way in WAYS.items():
        if address in without:
            continue
        device = root.joinpath(ROOT_OF, *way, address)
        device.mkdir(parents=True, exist_ok=True)
        (device / "class").write_text(f"{CLASSES.get(address, '0x060400')}\n")
        (device / "vendor").write_text(f"{VENDORS.get(address, '0x1000')}\n")
        (device / "config").write_bytes(space((acs or {}).get(address, 0)))
        if domain:
            (device / "iommu_group").mkdir(exist_ok=True)
            (device / "iommu_group/type").write_text(f"{domain}\n")
        (bus / address).symlink_to(os.path.relpath(device, bus))
    return root


def control(root: Path, address: str) -> int:
    """The control word of ACS that a device has."""
    data = (root / "sys/bus/pci/devices" / address / "config").read_bytes()
    return int.from_bytes(data[0x14E:0x150], "little")
