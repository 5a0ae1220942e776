"""Has Ansible begin a process only for a task that speaks to its host; see plugin_utils/near.py.

A callback, for Ansible lets a project add those, and means to take strategies of others away.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible.plugins.strategy import StrategyBase

from playbooks.plugin_utils import near

DOCUMENTATION = """
name: near
type: aggregate
short_description: Begins a process only for a task that speaks to its host
description: Makes runs cheaper for the control node, and changes nothing else about them.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "near"
    # It lies among our playbooks and belongs to them: whatever else a user enables, it runs.
    CALLBACK_NEEDS_ENABLED = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        del playbook
        strategy: Any = StrategyBase
        strategy._queue_task = near.queued(strategy._queue_task)
