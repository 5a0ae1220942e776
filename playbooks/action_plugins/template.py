"""Writes a template, as Ansible's `template` does, by the project's own `copy`.

Ansible's makes a temporary folder on the node before it knows whether anything is to be sent there.
Here `copy` makes it when something is.
"""

from __future__ import annotations

from typing import Any

from playbooks.plugin_utils.builtin_action import builtin_action

Template: Any = builtin_action("template")


class ActionModule(Template):  # type: ignore[misc] # known at run time
    """TRANSFERS_FILES is Ansible's name for whether there is such a folder."""

    TRANSFERS_FILES = False
    # Its `copy` does.
    looks = True
