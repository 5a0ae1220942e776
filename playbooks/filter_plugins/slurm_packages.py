"""Names of Slurm's packages: `{{ ['client'] | slurm_packages(slurm_packaging) }}`.

See plugin_utils/slurm_packages.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playbooks.plugin_utils import slurm_packages


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "slurm_packages": slurm_packages.names,
            "slurm_packages_anybodys": slurm_packages.anybodys,
            "slurm_packaging": slurm_packages.packaging,
        }
