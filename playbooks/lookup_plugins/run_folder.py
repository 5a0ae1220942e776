"""`lookup('run_folder')`: the folder of this run on the control node, private, gone at its end.

It is the one of the process that runs the playbook, which removes it; a task that asks Ansible's
settings for it would get another one, which nobody removes.
"""

from __future__ import annotations

from typing import Any

from ansible import constants
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    def run(
        self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[str]:
        del terms, variables, kwargs
        return [str(vars(constants)["DEFAULT_LOCAL_TMP"])]
