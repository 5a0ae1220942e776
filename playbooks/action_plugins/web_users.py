"""Passwords of web listeners, kept on the control node, and their hashes for the listeners.

    - name: Read or create the passwords
      web_users:
        files: {prometheus: /site/.secrets/monitoring_prometheus_password}
        deployed: {prometheus: what the cluster has}
      register: __users
      run_once: true
      no_log: true

A file that does not exist is made (not in check mode): of what the cluster has, else at random.
Fails with one sentence for a file that others can read, or a password that can be guessed. Returned
are `hashes`, by user the bcrypt hash, and `made`, the files that were made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from playbooks.plugin_utils import kept, vaulted, web


def passwords(
    files: Mapping[str, Path],
    deployed: Mapping[str, str],
    decrypted: kept.Decrypted,
    *,
    make: bool,
) -> tuple[dict[str, str], list[Path]]:
    """By user the password, and the files that were made. Raises NotKept.

    With `make` false a user whose file is missing is left out.
    """
    by_user: dict[str, str] = {}
    new_files = []
    for user, path in files.items():
        if text := kept.read(path, decrypted):
            by_user[user] = kept.password(text, path)
        elif make:
            had = deployed.get(user, "").strip("\n")
            by_user[user] = kept.password(had, path) if had else kept.new_password()
            kept.keep(path, by_user[user] + "\n")
            new_files.append(path)
    return by_user, new_files


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
                "files": {"type": "dict", "required": True},
                "deployed": {"type": "dict", "default": {}, "no_log": True},
            }
        )
        files = {str(user): Path(path) for user, path in arguments["files"].items()}
        try:
            by_user, new_files = passwords(
                files,
                arguments["deployed"],
                vaulted.reader(self._loader),
                make=not self._task.check_mode,
            )
        except (kept.NotKept, AnsibleError) as problem:
            return {**result, "failed": True, "msg": f"{problem}."}
        return {
            **result,
            "changed": bool(new_files),
            "made": [str(path) for path in new_files],
            "hashes": {user: web.hashed(user, password) for user, password in by_user.items()},
        }
