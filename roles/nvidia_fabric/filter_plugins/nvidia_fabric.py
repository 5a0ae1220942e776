"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.nvidia_fabric.plugin_utils import rows, software


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvidia_fabric_needs": software.parts,
            "nvidia_fabric_packages": software.packages,
            "nvidia_fabric_replaced": software.replaced,
            "nvidia_fabric_rows": rows.rows,
        }
