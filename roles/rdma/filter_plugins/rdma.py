"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.rdma.plugin_utils import modules, rows


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "rdma_lacking": modules.lacking,
            "rdma_rows": rows.rows,
            "rdma_stale": modules.stale,
        }
