"""The cluster as its inventory declares it, for a playbook that runs without preflight.

`lookup('declared_cluster')` returns what preflight registers: nodes, hosts, controllers,
hosts_lines, declaration. It is worked out anew at each use; a playbook for many hosts imports
declared.yml instead.

Raises AnsibleLookupError with one sentence when the inventory cannot be worked out.
"""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from cluster import contract
from cluster.refusal import standing
from playbooks.plugin_utils.cluster import silenced, work_out
from playbooks.plugin_utils.site import read_site


class LookupModule(LookupBase):
    def run(
        self, terms: Any, variables: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[dict[str, Any]]:
        del terms, kwargs
        site = read_site((variables or {})["hostvars"])
        cluster, refusals = work_out(site, contract.load())
        if sentences := standing(refusals, silenced(site)):
            raise AnsibleLookupError(sentences[0])
        return [cluster.plain()]
