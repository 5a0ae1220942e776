"""What lies between a node's GPUs and its network cards on the PCI bus, as the kernel shows it.

GPUDirect RDMA is a card that reads and writes a GPU's memory. Where both hang on one PCIe switch,
the switch hands the data over by itself, unless one of two has it take the way up to the processor
and back, at a fraction of the speed:

    ACS     Access Control Services of the bridges above the two: requests between peers are
            redirected (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/
            troubleshooting.html, "PCI Access Control Services", November 2026)
    IOMMU   one that translates addresses; it has to be off or to pass them through
            (https://docs.nvidia.com/cuda/gpudirect-rdma/, "Supported Systems", November 2026)

Bits and offsets are those of Linux, include/uapi/linux/pci_regs.h; that RR, CR and EC are what
stands in the way of peers says drivers/pci/p2pdma.c, pci_bridge_has_acs_redir.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from cluster import processes

GPU, NETWORK = "gpu", "network"

_NVIDIA = 0x10DE
_CLASSES = {0x02: NETWORK, 0x03: GPU}  # the first byte of PCI's class codes
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

# Extended capabilities begin at 0x100, each with its number, and where the next one is.
_EXTENDED = 0x100
_WHOLE = 0x1000  # bytes of configuration space; others than root see the first 64 alone
_ACS, _ACS_CONTROL = 0x0D, 0x06
_SHOWN = 4
REDIRECTS = 0x04 | 0x08 | 0x20  # P2P Request Redirect, P2P Completion Redirect, P2P Egress Control


class Hidden(Exception):
    """One sentence: why a bridge's configuration cannot be read."""


@dataclass(frozen=True, slots=True)
class Device:
    """bridges   addresses of what is above it, from the root down
    domain    how the IOMMU maps its addresses: identity, DMA, DMA-FQ; empty without an IOMMU
    """

    address: str
    kind: str
    bridges: tuple[str, ...]
    domain: str

    @property
    def translated(self) -> bool:
        return self.domain not in ("", "identity")


def virtual() -> str:
    """What the machine is virtual on; empty on a real one. Raises processes.CommandFailed.

    The bus of a virtual machine is made up, and its host sets the bridges below the real one.
    """
    command = ["systemd-detect-virt", "--vm"]
    machine = processes.run(command, None, any_status=True).stdout.strip()
    return "" if machine == "none" else machine


def devices(root: Path = Path("/")) -> list[Device]:
    """NVIDIA's GPUs and all network cards, in the order of their addresses."""
    return list(_devices(_bus(root)))


def _bus(root: Path) -> Path:
    return root / "sys/bus/pci/devices"


def _devices(bus: Path) -> Iterator[Device]:
    for entry in sorted(bus.iterdir()) if bus.is_dir() else []:
        kind = _CLASSES.get(int(_text(entry / "class") or "0", 16) >> 16, "")
        if not kind or (kind == GPU and int(_text(entry / "vendor") or "0", 16) != _NVIDIA):
            continue
        above = tuple(part for part in entry.resolve().parent.parts if _ADDRESS.fullmatch(part))
        yield Device(entry.name, kind, above, _text(entry / "iommu_group/type"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def between(found: Iterable[Device]) -> list[str]:
    """The bridges that data passes between a GPU and a card that share one, below the shared one.

    Peers that share none meet at the processor either way.
    """
    found = list(found)
    gpus = [device for device in found if device.kind == GPU]
    cards = [device for device in found if device.kind == NETWORK]
    ways = (_way(gpu.bridges, card.bridges) for gpu in gpus for card in cards)
    return sorted({bridge for way in ways for bridge in way})


def some(addresses: Sequence[str]) -> str:
    """The first of them, and how many more there are.

    >>> some(["0000:18:00.0", "0000:18:01.0"])
    '0000:18:00.0, 0000:18:01.0'
    """
    more = len(addresses) - _SHOWN
    return ", ".join(addresses[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _way(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    shared = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    )
    return (*one[shared:], *other[shared:]) if shared else ()


def redirecting(bridge: str, root: Path = Path("/")) -> bool:
    """Whether ACS of the bridge redirects what peers send each other. Raises Hidden."""
    space = _space(bridge, root)
    place = _control(space)
    return place is not None and bool(_word(space, place) & REDIRECTS)


def pass_on(bridge: str, root: Path = Path("/")) -> bool:
    """Has the bridge redirect nothing; whether it did before. Raises Hidden, or OSError."""
    space = _space(bridge, root)
    place = _control(space)
    if place is None or not _word(space, place) & REDIRECTS:
        return False
    with (_bus(root) / bridge / "config").open("r+b", buffering=0) as file:
        file.seek(place)
        file.write((_word(space, place) & ~REDIRECTS).to_bytes(2, "little"))
    return True


def _space(bridge: str, root: Path) -> bytes:
    """The bridge's configuration; 256 bytes of it where it has no extended capabilities."""
    try:
        space = (_bus(root) / bridge / "config").read_bytes()
    except OSError as error:
        raise Hidden(f"the configuration of {bridge} cannot be read: {error.strerror}") from error
    if len(space) not in (_EXTENDED, _WHOLE):
        raise Hidden(f"only {len(space)} bytes of the configuration of {bridge} can be read")
    return space


def _control(space: bytes) -> int | None:
    """Where the control word of ACS is; None where the bridge has no ACS."""
    place, seen = _EXTENDED, 0
    while _EXTENDED <= place < len(space) and seen < _WHOLE // 8:  # no more fit: a ring ends, too
        header = int.from_bytes(space[place : place + 4], "little")
        if header & 0xFFFF == _ACS:
            return place + _ACS_CONTROL
        place, seen = header >> 20 & 0xFFC, seen + 1
    return None


def _word(space: bytes, place: int) -> int:
    return int.from_bytes(space[place : place + 2], "little")
