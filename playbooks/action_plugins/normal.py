"""Runs any module that has no action of its own, as Ansible's `normal` does, or its look answers.

Ansible runs modules by `ansible.legacy.normal`, which it takes from a project that has one.
"""

from __future__ import annotations

from typing import Any

from playbooks.plugin_utils.builtin_action import builtin_action
from playbooks.plugin_utils.looking import Looking

Normal: Any = builtin_action("normal")


class ActionModule(Looking, Normal):  # type: ignore[misc] # known at run time
    """`plugin_utils/looking.py` says which calls a look answers."""
