"""Runs the module release_file, from a mirror where the cluster has one (MIRROR)."""

from __future__ import annotations

from typing import Any

from playbooks.filter_plugins.mirror import mirrored
from playbooks.plugin_utils.builtin_action import builtin_action
from playbooks.plugin_utils.looking import Looking

Normal: Any = builtin_action("normal")

# group_vars have it for the cluster's playbooks; a role that is applied alone has none.
MIRROR = "cluster_mirror"


class ActionModule(Looking, Normal):  # type: ignore[misc] # known at run time
    """The hash that is pinned is the same wherever the file comes from."""

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        arguments = self._task.args
        mirror = str(self._templar.template((task_vars or {}).get(MIRROR) or ""))
        if mirror and "url" in arguments:
            url = mirrored(str(arguments["url"]), mirror)
            if url != arguments["url"]:
                self._task.args = {**arguments, "url": url, "variable": MIRROR}
        result: dict[str, Any] = super().run(tmp, task_vars)
        return result
