"""The role's filter; what it does is in plugin_utils/rows.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Ansible loads a plugin by its path; what plugins share is a package from the checkout's root.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from roles.rdma.plugin_utils import rows


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rdma_rows": rows.rows}
