"""Judges what roles refuse by the facts of hosts that were asked, for all hosts at once.

`preflight_facts: {roles: FOLDER, given: {HOST: [ROLE, …]}}`

Runs on the control node. Returns `problems`, sentences by host, and `roles`: for each host those
whose refuse.yml does more than assert, and which are asked on the host itself. A host that told no
facts keeps all of its roles.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

# Ansible loads a plugin by its path; what plugins share is a package from the checkout's root.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from playbooks.plugin_utils.judge import judge_roles
from playbooks.plugin_utils.site import read_site


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS = frozenset({"roles", "given"})

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        del tmp
        arguments, variables = self._task.args, task_vars or {}
        site = read_site(variables["hostvars"])
        told = {
            host: roles
            for host, roles in arguments["given"].items()
            if site.values.hosts[host].get("ansible_facts")
        }
        found = judge_roles(site, told, Path(arguments["roles"]).resolve(), facts=True)
        return {
            "changed": False,
            "problems": {host: list(said) for host, said in found.sentences.items() if said},
            "roles": {**arguments["given"], **found.remaining},
        }
