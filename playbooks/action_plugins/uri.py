"""Asks a web server, as Ansible's `uri` does, without a temporary folder where no file is sent."""

from __future__ import annotations

from typing import Any

from playbooks.plugin_utils.builtin_action import builtin_action

Uri: Any = builtin_action("uri")


class ActionModule(Uri):  # type: ignore[misc] # known at run time
    """TRANSFERS_FILES is Ansible's name for whether there is such a folder."""

    TRANSFERS_FILES = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        arguments = self._task.args
        self.TRANSFERS_FILES = bool(
            arguments.get("src") or arguments.get("body_format") == "form-multipart"
        )
        result: dict[str, Any] = super().run(tmp, task_vars)
        return result
