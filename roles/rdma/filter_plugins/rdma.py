"""The role's filter; what it does is in plugin_utils/rows.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.rdma.plugin_utils import rows


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rdma_rows": rows.rows}
