"""The authority on the control node; where it has none, the one that the cluster has, or a new one.

    tls_authority:
      file: /site/.secrets/tls_authority.pem
      deployed: what the cluster has, or empty
      make: true
      replace: false
      name: site
      days: 3650
      renew_days: 90

A file that does not exist is written with `make`, not in check mode. With `replace` another one
takes its place, once for each replacement (playbooks/plugin_utils/rotation.py). Fails with one
sentence where the authority cannot be used. Returns `certificate`, what clients trust, in PEM;
empty where there is none yet.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from playbooks.plugin_utils import kept, rotation, vaulted
from roles.tls_certificate.plugin_utils import authority_file
from roles.tls_certificate.plugin_utils.certificates import new_authority


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
                "file": {"type": "path", "required": True},
                "deployed": {"type": "str", "default": "", "no_log": True},
                "make": {"type": "bool", "required": True},
                "replace": {"type": "bool", "default": False},
                "name": {"type": "str", "required": True},
                "days": {"type": "int", "required": True},
                "renew_days": {"type": "int", "required": True},
            }
        )
        path, now = Path(arguments["file"]), datetime.now(UTC)
        make = arguments["make"] and not self._task.check_mode
        decrypted = vaulted.reader(self._loader)
        changed = False
        try:
            if make and arguments["replace"]:
                loader: Any = self._loader

                def another() -> bytes:
                    return new_authority(arguments["name"], now, arguments["days"]).secret.encode()

                passwords = loader._vault.secrets or []
                changed = rotation.begin(path, another, passwords, now.timestamp())
            authority = authority_file.read(path, decrypted, now, arguments["renew_days"])
            if authority is None and arguments["deployed"]:
                authority = authority_file.deployed(
                    arguments["deployed"], decrypted, now, arguments["renew_days"]
                )
                if make:
                    kept.keep(path, arguments["deployed"].strip() + "\n")
                    changed = True
            elif authority is None and make:
                authority = new_authority(arguments["name"], now, arguments["days"])
                kept.keep(path, authority.secret)
                changed = True
        except (kept.NotKept, AnsibleError) as problem:
            return {**result, "failed": True, "msg": f"tls_certificate: {problem}."}
        return {**result, "changed": changed, "certificate": authority.pem if authority else ""}
