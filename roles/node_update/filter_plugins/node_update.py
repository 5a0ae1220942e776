"""The role's filters; what they do is in plugin_utils/kernel.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.node_update.plugin_utils import kernel


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"node_update_reboot_due": kernel.reboot_due}
