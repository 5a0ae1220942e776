"""Ends a run before its first play if a file of variables beside the inventory cannot be read.

Ansible would read it while it prepares the first play, and name neither file nor line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.callback import CallbackBase

from playbooks.plugin_utils import variable_files

DOCUMENTATION = """
name: variable_files
type: aggregate
short_description: Names file and line of what cannot be read beside the inventory
description: Belongs to C(plugin_utils/variable_files.py).
"""

EXIT_STATUS = 4  # Ansible's own for what it cannot parse


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "variable_files"
    # It lies among our playbooks and belongs to them: whatever else a user enables, it runs.
    CALLBACK_NEEDS_ENABLED = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        loader = playbook.get_loader()

        def decrypt(path: Path) -> None:
            if not loader._vault.secrets:
                raise ValueError(
                    "is encrypted, and there is no vault password; add --ask-vault-pass or "
                    "--vault-password-file FILE"
                )
            try:
                loader._vault.decrypt(path.read_bytes(), filename=str(path))
            except AnsibleError as error:
                raise ValueError(
                    "is encrypted, and none of the given vault passwords opens it"
                ) from error

        paths = variable_files.files(context.CLIARGS.get("inventory") or ())
        if not (sentences := variable_files.problems(paths, decrypt)):
            return
        lines = ["ERROR: The inventory's variables cannot be read. No host was contacted."]
        lines += [f"  {sentence}" for sentence in sentences]
        self._display.display("\n".join(lines), color="red", stderr=True)
        raise SystemExit(EXIT_STATUS)
