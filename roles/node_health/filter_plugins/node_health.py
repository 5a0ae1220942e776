"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.node_health.plugin_utils import checks


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "node_health_checks": checks.merged,
            "node_health_problems": checks.problems,
            "node_health_rows": checks.rows,
            "node_health_draining": checks.draining,
        }
