"""Whether network cards reach the GPUs' memory on the shortest way: no bridge sends data round by
the processor, and no IOMMU translates the addresses. See cluster/readers/pci.py.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.readers import pci
from validation.checks import infiniband
from validation.node_health.config import HealthSettings
from validation.node_health.outcome import FAIL, PASS, SKIP, UNKNOWN, Outcome

ROOT = Path("/")


def rdma_path(config: HealthSettings, arguments: Mapping[str, Any]) -> Outcome:
    """Between GPUs and network cards nothing redirects or translates what they send each other."""
    if not config.gpus.real or infiniband.declared(config.fabric) is None:
        return Outcome(SKIP, "GPUs together with InfiniBand or RoCE are not declared")
    if machine := pci.virtual():
        return Outcome(SKIP, f"a virtual machine ({machine}): its host sets the ways on the bus")
    found = pci.devices(ROOT)
    for kind, name in ((pci.GPU, "GPU"), (pci.NETWORK, "network card")):
        if not any(device.kind == kind for device in found):
            return Outcome(UNKNOWN, f"the PCI bus shows no {name}")
    bridges = pci.between(found)
    try:
        redirecting = [bridge for bridge in bridges if pci.redirecting(bridge, ROOT)]
    except pci.Hidden as hidden:
        return Outcome(UNKNOWN, str(hidden))
    problems = "; ".join(_problems(redirecting, found))
    if problems:
        return Outcome(FAIL, problems)
    return Outcome(
        PASS, "" if bridges else "no network card has a PCIe switch in common with a GPU"
    )


def _problems(redirecting: Sequence[str], found: Sequence[pci.Device]) -> Iterator[str]:
    if redirecting:
        where = pci.some(redirecting)
        yield f"ACS redirects what GPUs and network cards send each other at {where}"
    # On Arm the IOMMU stays: https://docs.nvidia.com/gpudirect-storage/troubleshooting-guide/
    # installing-gpudirect-storage.html, "can be skipped on ARM platforms", November 2026.
    translated = [device.address for device in found if device.translated]
    if translated and platform.machine() == "x86_64":
        yield f"the IOMMU translates the addresses of {pci.some(translated)}: boot with iommu=pt"
