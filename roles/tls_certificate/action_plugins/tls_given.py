"""A certificate, key and authority that a site gives for a host, judged before any is copied.

    tls_given:
      certificate: FILE
      key: FILE
      authority: FILE
      names: [gpu1]
      addresses: [10.0.0.11]
      asks: false
      texts: true

Files of the control node, the key of mode 0600 or encrypted by ansible-vault. Fails with one
sentence. Returned with `texts` are `certificate`, `key` and `authority`; hide those (no_log).
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from playbooks.plugin_utils import kept, vaulted
from roles.tls_certificate.plugin_utils.certificates import Server, given_problems

FILES = ("certificate", "key", "authority")


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
                **{name: {"type": "path", "required": True} for name in FILES},
                "names": {"type": "list", "elements": "str", "required": True},
                "addresses": {"type": "list", "elements": "str", "required": True},
                "asks": {"type": "bool", "default": False},
                "texts": {"type": "bool", "default": False},
            }
        )
        host = (task_vars or {}).get("inventory_hostname", "the host")
        decrypted = vaulted.reader(self._loader)
        try:
            for name in FILES:
                if not Path(arguments[name]).is_file():
                    raise kept.NotKept(f"{arguments[name]} is no file on the control node")
            texts = {
                name: decrypted(Path(arguments[name])) for name in ("certificate", "authority")
            }
            texts["key"] = kept.read(Path(arguments["key"]), decrypted)
        except (kept.NotKept, AnsibleError) as problem:
            return {**result, "failed": True, "msg": f"tls_certificate: {problem}."}
        server = Server(tuple(arguments["names"]), tuple(arguments["addresses"]), arguments["asks"])
        problems = given_problems(
            texts["certificate"], texts["key"], texts["authority"], server, datetime.now(UTC)
        )
        if problems:
            sentence = (
                f"tls_certificate: what is given for {host} cannot be used, because "
                f"{' and '.join(problems)} ({arguments['certificate']})."
            )
            return {**result, "failed": True, "msg": sentence}
        return {**result, "changed": False, **(texts if arguments["texts"] else {})}
