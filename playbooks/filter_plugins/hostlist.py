"""`compressed_hostlist`: names of hosts as Slurm's host lists, `gpu[001-100,105],login1`.

Slurm reads them wherever it reads names, and 1,000 nodes are then one word. The other way round is
`scontrol show hostnames`.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.hostlist import compress


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"compressed_hostlist": compress}
