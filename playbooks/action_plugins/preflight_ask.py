"""Asks a host all that preflight has to ask it, in one task.

`preflight_ask: {roles: FOLDER, questions: [{number, action, arguments, …}]}`

A question is a task of a role's refuse.yml, as preflight_facts found it. Returns `answers`: by
number what the module or action returned. One that fails is an answer; a host that cannot be
reached ends the task as it ends any.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from playbooks.plugin_utils.asking import add_roles, answer


class ActionModule(ActionBase):
    _requires_connection = True
    _supports_check_mode = True
    _VALID_ARGS = frozenset({"roles", "questions"})

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        del tmp
        questions = self._task.args["questions"]
        add_roles(Path(self._task.args["roles"]).resolve(), questions)
        answers = {
            question["number"]: answer(self, question, task_vars or {}) for question in questions
        }
        return {"changed": False, "answers": answers}
