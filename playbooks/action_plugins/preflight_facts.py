"""Judges what roles refuse by what hosts told, for all hosts at once.

`preflight_facts: {roles: FOLDER, given: {HOST: [ROLE, …]}, last: false}`

Runs on the control node. Returns `problems`, sentences by host; `questions`, what each host is to
be asked (preflight_ask) before more can be said; and `roles`: for each host those that only Ansible
can ask, on the host itself. A host that told no facts keeps all of its roles.

To be run again when hosts were asked: it reads their answers from what preflight_ask registered
(ASKED). With `last` no host is asked any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from playbooks.plugin_utils.asking import answer, needs_no_host
from playbooks.plugin_utils.judge import OURS
from playbooks.plugin_utils.placing import placed
from playbooks.plugin_utils.progress import Progress
from playbooks.plugin_utils.refusing import Here, refusing
from playbooks.plugin_utils.site import read_site

ASKED = ("__preflight_first", "__preflight_second")
# What Ansible says of a play, which preflight's play has as the roles' will.
SAID = ("ansible_check_mode", "ansible_play_hosts", "ansible_play_hosts_all", "ansible_play_batch")


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS = frozenset({"roles", "given", "last"})

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        del tmp
        arguments, variables = self._task.args, task_vars or {}
        site = read_site(variables["hostvars"])
        for name in SAID:
            if name in variables:
                site.values.define(name, variables[name])
        roles_by_host = {
            host: roles
            for host, roles in arguments["given"].items()
            if site.values.hosts[host].get("ansible_facts")
        }
        answers: dict[str, dict[str, Any]] = {}
        for host, raw in site.values.hosts.items():
            answers[host] = {}
            for name in ASKED:
                answers[host] |= (raw.get(name) or {}).get("answers") or {}

        def run(question: Mapping[str, Any], host: str) -> dict[str, Any]:
            return answer(self, question, {**variables, "inventory_hostname": host})

        playing = set(variables.get("ansible_play_hosts") or ()) & set(roles_by_host)
        findings = refusing(
            site,
            roles_by_host,
            Path(arguments["roles"]).resolve(),
            Here(
                answers=answers,
                answering=frozenset() if arguments.get("last") else playing,
                needs_no_host=lambda name: needs_no_host(self, name),
                run=run,
            ),
            Progress(Display().display),
        )
        return {
            "changed": False,
            "problems": {
                host: placed(sentences, site, OURS)
                for host, sentences in findings.sentences.items()
                if sentences
            },
            "questions": findings.questions,
            "roles": {**arguments["given"], **findings.left},
        }
