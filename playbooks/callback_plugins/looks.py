"""Ends a host's look at the first change, and remembers what was asked for the next run.

What one host answers may depend on another, so a change on any host ends the looks of all. So does
the hold on the inventory: until a run has it, another may have been at work. Check mode holds
nothing, and asks after that task what a run asks after it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from ansible.plugins.callback import CallbackBase

from playbooks.plugin_utils import look, look_files, looking

DOCUMENTATION = """
name: looks
type: aggregate
short_description: Ends looks at a change, and remembers what was asked
description: Belongs to C(plugin_utils/looking.py).
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "looks"
    # It lies among our playbooks and belongs to them: whatever else a user enables, it runs.
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self) -> None:
        super().__init__()
        self._run = looking.this_run()

    def v2_runner_on_ok(self, result: Any) -> None:
        if result._task.action == "hold":
            self._run.note_hold()
        elif result._result.get("changed") and not result._task.check_mode:
            self._run.note_change()

    def v2_runner_on_skipped(self, result: Any) -> None:
        if result._task.action == "hold":
            self._run.note_hold()

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """What failed may have changed something before it did."""
        del result, ignore_errors
        self._run.note_change()

    def v2_runner_on_unreachable(self, result: Any) -> None:
        del result
        self._run.note_change()

    def v2_playbook_on_stats(self, stats: Any) -> None:
        for name in self._run.hosts():
            host = unquote(name)
            questions = look.remember(
                look_files.known_questions(looking.same_command(), host),
                self._run.questions(host),
                self._run.used(host),
                self._run.looked(host),
            )
            look_files.keep_questions(looking.same_command(), host, questions)
