"""The module alert_silence, for a host that may be away.

A host of the monitoring that cannot be reached ends no maintenance, and Ansible would end the play
for it: of a host that a loop delegates to, `ignore_unreachable` does not hold.
"""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

AWAY = {"changed": False, "answered": False, "note": "", "away": True, "silences": []}


class ActionModule(ActionBase):
    """Returns what the module does, and `away: true` where it could not be started."""

    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        ansible: Any = self  # whose methods have no types
        try:
            return {**result, **ansible._execute_module(task_vars=task_vars)}
        except AnsibleConnectionFailure:
            return {**result, **AWAY}
