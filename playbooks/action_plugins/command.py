"""Runs a command, as Ansible's `command` and `shell` do; one that only reads, its look may answer.

A task says that its command only reads by `changed_when: false` and `check_mode: false`.
"""

from __future__ import annotations

from typing import Any

from playbooks.plugin_utils.builtin_action import builtin_action
from playbooks.plugin_utils.looking import Looking

Command: Any = builtin_action("command")


class ActionModule(Looking, Command):  # type: ignore[misc] # known at run time
    """`plugin_utils/looking.py` says which calls a look answers."""
