"""Has the PCIe bridges between GPUs and network cards pass on what these send each other.

Bits that firmware or kernel set at a boot stay until the next one, so that this runs at each boot.
Only bridges between a GPU and a card are changed, and of ACS only what redirects; what a virtual
machine's host decides is left to it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.processes import CommandFailed
from cluster.readers import pci


def main(arguments: Sequence[str]) -> int:
    """Prints a sentence, and returns the exit status."""
    try:
        print(cleared(Path(arguments[0])))
    except (pci.Hidden, CommandFailed, OSError, Translated) as problem:
        print(f"plumbline-acs: {problem}", file=sys.stderr)
        return 1
    return 0


class Translated(Exception):
    """One sentence: why ACS has to stay."""


def cleared(root: Path) -> str:
    """What was changed. Raises Hidden, CommandFailed, OSError or Translated."""
    if machine := pci.virtual():
        return f"Nothing is changed on a virtual machine ({machine})."
    found = pci.devices(root)
    translated = [device.address for device in found if device.translated]
    if translated:
        raise Translated(
            f"the IOMMU translates the addresses of {pci.some(translated)}, and without ACS a "
            "switch would send them elsewhere; nothing is changed (rdma_iommu_passthrough)"
        )
    changed = [bridge for bridge in pci.between(found) if pci.pass_on(bridge, root)]
    if stubborn := [bridge for bridge in changed if pci.redirecting(bridge, root)]:
        raise OSError(f"ACS of {pci.some(stubborn)} does not change")
    if changed:
        return f"ACS redirects no more at {', '.join(changed)}."
    return "ACS redirects nothing between GPUs and network cards."
