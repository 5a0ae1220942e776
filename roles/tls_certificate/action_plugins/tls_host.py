"""The certificate that a host should have, signed anew only where there is a reason.

    tls_host:
      authority: /site/.secrets/tls_authority.pem
      request: PEM of the host's request
      certificate: PEM of what the host has, or empty
      names: [gpu1]
      addresses: [10.0.0.11]
      asks: false
      days: 365
      renew_days: 90

It runs on the control node alone. Returned are `certificate`, in PEM, and `why` it is a new one;
`why` is empty, and nothing changed, where the host's is good.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from playbooks.plugin_utils import kept, vaulted
from roles.tls_certificate.plugin_utils import authority_file
from roles.tls_certificate.plugin_utils.certificates import (
    Server,
    Unusable,
    read_request,
    signed,
    why_another,
)


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
                "authority": {"type": "path", "required": True},
                "request": {"type": "str", "required": True},
                "certificate": {"type": "str", "default": ""},
                "names": {"type": "list", "elements": "str", "required": True},
                "addresses": {"type": "list", "elements": "str", "required": True},
                "asks": {"type": "bool", "default": False},
                "days": {"type": "int", "required": True},
                "renew_days": {"type": "int", "required": True},
            }
        )
        path, now = Path(arguments["authority"]), datetime.now(UTC)
        server = Server(tuple(arguments["names"]), tuple(arguments["addresses"]), arguments["asks"])
        host = (task_vars or {}).get("inventory_hostname", "the host")
        try:
            authority = authority_file.read(
                path, vaulted.reader(self._loader), now, arguments["renew_days"]
            )
            if authority is None:
                raise kept.NotKept(f"{path} does not exist on the control node")
            request = read_request(arguments["request"])
        except (kept.NotKept, AnsibleError) as problem:
            return {**result, "failed": True, "msg": f"tls_certificate: {problem}."}
        except Unusable as problem:
            sentence = f"tls_certificate: the request of {host} cannot be used: {problem}."
            return {**result, "failed": True, "msg": sentence}
        had = arguments["certificate"]
        why = why_another(had, request, server, authority, now, arguments["renew_days"])
        pem = signed(request, server, authority, now, arguments["days"]) if why else had
        return {**result, "changed": bool(why), "why": why, "certificate": pem}
