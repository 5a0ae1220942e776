"""The authority on the control node; where it has none, the one that the cluster has, or a new one.

    tls_authority:
      file: /site/.secrets/tls_authority.pem
      deployed: what the cluster has, or empty
      make: true
      name: site
      days: 3650
      renew_days: 90

A file that does not exist is written with `make`, not in check mode. Fails with one sentence where
the authority cannot be used. Returns `certificate`, what clients trust, in PEM; empty where there
is none yet.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from playbooks.plugin_utils import kept, vaulted
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
        _, given = ansible.validate_argument_spec(
            argument_spec={
                "file": {"type": "path", "required": True},
                "deployed": {"type": "str", "default": "", "no_log": True},
                "make": {"type": "bool", "required": True},
                "name": {"type": "str", "required": True},
                "days": {"type": "int", "required": True},
                "renew_days": {"type": "int", "required": True},
            }
        )
        path, now = Path(given["file"]), datetime.now(UTC)
        make = given["make"] and not self._task.check_mode
        decrypted = vaulted.reader(self._loader)
        changed = False
        try:
            found = authority_file.read(path, decrypted, now, given["renew_days"])
            if found is None and given["deployed"]:
                found = authority_file.deployed(
                    given["deployed"], decrypted, now, given["renew_days"]
                )
                if make:
                    kept.keep(path, given["deployed"].strip() + "\n")
                    changed = True
            elif found is None and make:
                found = new_authority(given["name"], now, given["days"])
                kept.keep(path, found.secret)
                changed = True
        except (kept.NotKept, AnsibleError) as problem:
            return {**result, "failed": True, "msg": f"tls_certificate: {problem}."}
        return {**result, "changed": changed, "certificate": found.pem if found else ""}
