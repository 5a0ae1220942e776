"""Writes what all hosts of the play answered into one file, for scripts/verify to judge.

    - security_answers:
        path: FILE
        connected: __connection   # what was registered of the first task
        answered: __security      # and of `security`

It runs on the control node, once. A host that did not answer is in the file too, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from cluster.files import write_whole
from playbooks.callback_plugins.summary import failure_words, unreachable_words

SHOWN = ("facts", "errors", "declared")


def answer(
    groups: list[str], connected: Mapping[str, Any], answered: Mapping[str, Any]
) -> dict[str, Any]:
    """What is written of one host."""
    for result in (connected, answered):
        if result.get("unreachable"):
            return {"groups": groups, "away": unreachable_words(result)}
        if result.get("failed"):
            return {"groups": groups, "away": failure_words(result)}
    if "facts" not in answered:
        return {"groups": groups, "away": "it was not asked"}
    return {"groups": groups, **{key: answered.get(key) or {} for key in SHOWN}}


class ActionModule(ActionBase):
    """`security_answers: {path: FILE, connected: NAME, answered: NAME}`"""

    _requires_connection = False
    _supports_check_mode = True
    BYPASS_HOST_LOOP = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        del tmp
        variables = task_vars or {}
        first, second = self._task.args["connected"], self._task.args["answered"]
        answers = {}
        for name in variables["ansible_play_hosts_all"]:
            host = variables["hostvars"][name]
            answers[name] = answer(
                list(host["group_names"]), host.get(first) or {}, host.get(second) or {}
            )
        write_whole(Path(self._task.args["path"]), json.dumps(answers).encode(), 0o600)
        return {"changed": False}
