"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Ansible loads a plugin by its path; what plugins share is a package from the checkout's root.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from roles.nvidia_fabric.plugin_utils import rows, software


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvidia_fabric_needs": software.parts,
            "nvidia_fabric_packages": software.packages,
            "nvidia_fabric_rows": rows.rows,
        }
