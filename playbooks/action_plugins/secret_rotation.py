"""Secrets of the control node that are replaced, and the end of it.

    - name: Write a new key beside the old one
      secret_rotation:
        kind: munge
        files: ["{{ munge_key_file }}"]
      register: __rotation
      run_once: true

    - name: Forget the old key
      secret_rotation: {files: ["{{ munge_key_file }}"], state: complete}
      run_once: true

It runs on the control node, without a connection, and returns names of files, never a value:
`began` those that have a new value now, and `completed` those whose old value is gone. A file whose
replacement an earlier run has begun keeps the value that it was given then.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from playbooks.plugin_utils import kept, known_secrets, rotation


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        ansible: Any = self  # whose methods have no types
        _, arguments = ansible.validate_argument_spec(
            argument_spec={
                "files": {"type": "list", "elements": "path", "required": True},
                "kind": {"type": "str", "choices": list(known_secrets.MAKERS)},
                "state": {"type": "str", "choices": ["begun", "complete"], "default": "begun"},
            },
            required_if=[("state", "begun", ["kind"])],
        )
        files = [Path(path) for path in dict.fromkeys(arguments["files"])]
        if self._task.check_mode:
            return {**result, "changed": True, "began": [], "completed": []}
        began: list[Path] = []
        completed: list[Path] = []
        try:
            if arguments["state"] == "complete":
                completed = rotation.complete(files)
            else:
                make = known_secrets.MAKERS[arguments["kind"]]
                loader: Any = self._loader
                for path in files:
                    passwords = loader._vault.secrets or []
                    if rotation.begin(path, make, passwords, time.time()):
                        began.append(path)
        except kept.NotKept as problem:
            return {**result, "failed": True, "msg": f"{problem}."}
        return {
            **result,
            "changed": bool(began or completed),
            "began": [str(path) for path in began],
            "completed": [str(path) for path in completed],
        }
