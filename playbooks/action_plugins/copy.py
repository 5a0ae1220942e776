"""Brings a file to a node, as Ansible's `copy` does; one that is there already costs it nothing.

Ansible's asks for the file's hash, then for owner and mode, between a temporary folder that is made
and removed: four questions. Where the look of the node answers both and nothing differs, that is
all; in any other case Ansible's own action does what it always does.
"""

from __future__ import annotations

from typing import Any

from playbooks.plugin_utils import looking
from playbooks.plugin_utils.builtin_action import builtin_action, builtin_module
from playbooks.plugin_utils.looking import Looking

Copy: Any = builtin_action("copy")


class _Unanswered(Exception):
    """Something has to be asked or sent."""


def _may_be_answered(action: Any, variables: dict[str, Any]) -> bool:
    return looking.may_ask(action, variables) and looking.answers_count(action, variables)


class ActionModule(Looking, Copy):  # type: ignore[misc] # known at run time
    TRANSFERS_FILES = True
    _answers_only = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        action: Any = self
        ansibles: Any = super()
        shell = action._connection._shell
        if shell.tmpdir is None and _may_be_answered(action, task_vars or {}):
            self._answers_only, self.TRANSFERS_FILES = True, False
            shell.tmpdir = "/nonexistent"  # named, and never sent to
            try:
                answered: dict[str, Any] = ansibles.run(tmp, task_vars)
                return answered
            except _Unanswered:
                pass
            finally:
                self._answers_only, self.TRANSFERS_FILES = False, True
                shell.tmpdir = None
        result: dict[str, Any] = ansibles.run(tmp, task_vars)
        if result.get("changed") and not result.get("failed") and result.get("dest"):
            self._note_what_comes_next(task_vars or {})
        return result

    def _note_what_comes_next(self, variables: dict[str, Any]) -> None:
        """The next run finds the file, and asks for its owner and mode where this one wrote it."""
        action: Any = self
        if looking.may_ask(action, variables):
            file_arguments = builtin_module("copy")._create_remote_file_args(action._task.args)
            arguments = {**file_arguments, "dest": action._task.args["dest"], "recurse": False}
            arguments.pop("src", None)
            question = looking.question_of(action, "file", {**arguments, "state": "file"})
            if question:
                looking.this_run().note_asked(variables["inventory_hostname"], question)

    def _execute_unanswered(self, **arguments: Any) -> dict[str, Any]:
        self._asks()
        return super()._execute_unanswered(**arguments)

    def _transfer_file(self, local_path: str, remote_path: str) -> Any:
        self._asks()
        ansibles: Any = super()
        return ansibles._transfer_file(local_path, remote_path)

    def _get_diff_data(self, *arguments: Any, **more: Any) -> Any:
        self._asks()
        ansibles: Any = super()
        return ansibles._get_diff_data(*arguments, **more)

    def _remove_tmp_path(self, tmp_path: str | None, force: bool = False) -> None:
        if not self._answers_only:
            ansibles: Any = super()
            ansibles._remove_tmp_path(tmp_path, force)

    def _asks(self) -> None:
        if self._answers_only:
            raise _Unanswered
