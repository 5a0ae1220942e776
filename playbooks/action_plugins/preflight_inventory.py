"""Judges the whole inventory on the control node, in one process, and works out the cluster.

`preflight_inventory: {roles: FOLDER, playbook: FILE, judge: true}`

Fails with one sentence for each thing that is wrong. Otherwise returns `cluster`, what
group_vars/all/cluster.yml reads, and `roles`, for each host the roles that have more to refuse.
With `judge: false` only what makes the cluster impossible to work out is refused, and a run that
has the cluster already keeps it.

It asks no host, and looks at all of them whatever --limit says. Ansible accepts a misspelt variable
in silence, and checks a role's arguments only when the role starts, once for each host.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from cluster import contract
from cluster.refusal import standing
from playbooks.plugin_utils.cluster import WORKED_OUT, silenced, work_out
from playbooks.plugin_utils.judge import Judgement, cautions, judge
from playbooks.plugin_utils.progress import Progress
from playbooks.plugin_utils.site import Site, read_site
from playbooks.plugin_utils.variables import read_specs


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS = frozenset({"roles", "playbook", "judge"})

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        del tmp
        arguments, variables = self._task.args, task_vars or {}
        judging = boolean(arguments.get("judge", True))
        if not judging and "cluster" in (known := variables.get(WORKED_OUT) or {}):
            return dict(known)
        site = read_site(variables["hostvars"])
        if judging:
            folder = Path(arguments["roles"]).resolve()
            judgement = judge(
                site,
                contract.load(),
                read_specs(folder),
                folder=folder,
                playbook=Path(arguments["playbook"]),
                progress=Progress(Display().display),
            )
        else:
            judgement = _worked_out(site)
        if judgement.sentences:
            first = "preflight refused the inventory; nothing was changed."
            return {"failed": True, "changed": False, "msg": [first, *judgement.sentences]}
        return {
            "changed": False,
            "cluster": judgement.cluster.plain(),
            "roles": judgement.roles,
            "warnings": cautions(site) if judging else [],
        }


def _worked_out(site: Site) -> Judgement:
    cluster, refusals = work_out(site, contract.load())
    return Judgement(standing(refusals, silenced(site)), cluster, {})
