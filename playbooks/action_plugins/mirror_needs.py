"""Says what playbooks would download on the hosts of an inventory, and writes it as one document.

`mirror_needs: {roles: FOLDER, playbooks: [FILE, …], systems: {PATTERN: NAME}, kernel: RELEASE,
dest: FILE}`

Runs on the control node and asks no host: hosts that `systems` names are taken to be freshly
installed systems of that name (plugin_utils/systems.py), the others have told their facts before.
Fails with one sentence where what a task downloads cannot be said.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from cluster.files import write_whole
from playbooks.plugin_utils.downloads import UnknownError, downloads
from playbooks.plugin_utils.needs import UnmetError, document
from playbooks.plugin_utils.site import Site, read_site
from playbooks.plugin_utils.systems import NoSystemError, facts_of

# A mirror is made of what lies elsewhere, also when the nodes have one already.
SWITCH = "cluster_mirror"


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS = frozenset({"roles", "playbooks", "systems", "kernel", "dest"})

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        del tmp
        arguments, variables = self._task.args, task_vars or {}
        hostvars = variables["hostvars"]
        try:
            site = _with_facts(hostvars, arguments["systems"], arguments["kernel"])
            needs = document(
                site,
                [
                    download
                    for playbook in arguments["playbooks"]
                    for download in downloads(
                        site, Path(playbook).resolve(), Path(arguments["roles"]).resolve()
                    )
                ],
            )
        except (NoSystemError, UnknownError, UnmetError, AnsibleError) as error:
            return {"failed": True, "changed": False, "msg": str(error)}
        write_whole(Path(arguments["dest"]), json.dumps(needs, indent=1, sort_keys=True) + "\n")
        return {"changed": False}


def _with_facts(hostvars: Any, systems: dict[str, str], kernel: str) -> Site:
    manager, variable_manager = hostvars._inventory, hostvars._variable_manager
    for pattern, name in systems.items():
        facts = facts_of(name, kernel)
        hosts = manager.get_hosts(pattern, ignore_limits=True, ignore_restrictions=True)
        if not hosts:
            raise NoSystemError(f"no host of the inventory is {pattern!r}, which is to be {name}.")
        for host in hosts:
            variable_manager.set_host_facts(host.name, dict(facts))
    site = read_site(hostvars)
    site.values.define(SWITCH, "")
    without = [name for name in site.names if not site.values.hosts[name].get("ansible_facts")]
    if without:
        raise NoSystemError(
            f"{', '.join(without)} told no facts; name their system, as --system debian13."
        )
    return site
