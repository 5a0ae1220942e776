"""The role's filters; what they do is in playbooks/plugin_utils/service.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playbooks.plugin_utils import service


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "node_reboot_place": service.place,
            "node_reboot_waits": service.waits,
            "node_reboot_reason": service.reason,
            "node_reboot_signed": lambda words: f"{words}, by {service.operator()}",
            "node_reboot_to_drain": service.to_drain,
            "node_reboot_in_service": service.in_service,
            "node_reboot_out_already": service.out_already,
            "node_reboot_busy": service.busy,
            "node_reboot_slurmd_start": service.slurmd_start,
            "node_reboot_silent": service.silent,
            "node_reboot_to_return": service.to_return,
            "node_reboot_kept_out": service.kept_out,
            "node_reboot_not_back": service.not_back,
        }
