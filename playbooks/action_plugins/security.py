"""What a host says about its security, and what the inventory says of it.

    - name: Ask
      security: {salt: "…"}
      register: __security

One program (cluster/readers/security.py) answers all questions from the host's memory, as root; see
plugin_utils/node_reader.py. It only reads, so it runs in check mode too. Returned are

    facts     answers, by question
    errors    why a question has none
    declared  values of the inventory, by variable; a role's default where it sets none
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

from cluster import fixed_versions
from playbooks.callback_plugins.audit import VARIABLE
from playbooks.plugin_utils import node_reader, packed
from playbooks.plugin_utils import security_items as items

MAIN = """\
import json, sys
from cluster.readers import security

print(json.dumps({"plumbline_security": security.ask(json.loads(sys.argv[1]))}))
"""
READER = node_reader.Reader(
    does="reads what a host says about its security",
    mark="plumbline_security",
    main=MAIN,
)


class ActionModule(node_reader.ReaderAction):
    """`security: {salt: TEXT}`."""

    reader = READER
    arguments: ClassVar = {"salt": {"type": "str", "required": True}}

    def question(
        self, given: Mapping[str, Any], variables: Mapping[str, Any], told: dict[str, Any]
    ) -> list[str]:
        told["declared"] = declared = {
            name: self._declared(name, role, variables) for name, role in items.DECLARED.items()
        }
        return [request_for(declared, variables.get("group_names") or [], given["salt"])]

    def _declared(self, name: str, role: str, variables: Mapping[str, Any]) -> Any:
        ansible: Any = self
        file = packed.ROOT / "roles" / role / "defaults/main.yml"
        value = variables.get(name)
        if name not in variables and role and Path(file).is_file():
            defaults = ansible._loader.load_from_file(str(file), trusted_as_template=True)
            value = (defaults or {}).get(name)
        try:
            return ansible._templar.template(value)
        except Exception as error:
            raise AnsibleActionFail(f"{name} of the inventory has no value: {error}") from error


def request_for(declared: Mapping[str, Any], groups: list[str], salt: str) -> str:
    """What the reader is asked for, on its command line."""
    return json.dumps(
        {
            "salt": salt,
            "munge_hole": items.MUNGE_HOLE,
            "run": os.environ.get(VARIABLE, ""),
            "paths": items.paths(declared),
            "sysctls": sorted(declared.get("node_base_sysctls") or {}),
            "web": items.web_ports(declared),
            "units": items.UNITS,
            "packages": sorted(
                set(fixed_versions.installed()) - {fixed_versions.DRIVER, fixed_versions.KERNEL}
            ),
            "controller": "slurm_controller" in groups,
            "compute": "slurm_compute" in groups,
            "database": "slurm_database" in groups,
        }
    )
