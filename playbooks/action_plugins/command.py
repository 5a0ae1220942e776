"""Runs a command, as Ansible's `command` and `shell` do; one that only reads, its look may answer.

A task says that its command only reads by `changed_when: false` and `check_mode: false`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Ansible loads a plugin by its path; what plugins share is a package from the checkout's root.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from playbooks.plugin_utils.builtin_action import builtin_action
from playbooks.plugin_utils.looking import Looking

Command: Any = builtin_action("command")


class ActionModule(Looking, Command):  # type: ignore[misc] # known at run time
    """`plugin_utils/looking.py` says which calls a look answers."""
