"""Writes down what a run said of each task that changed a host: one JSON document a line.

What a person reads of it is the task's name and the host; what it was about, a path, a package, a
unit, is in its result. A result that is kept out of logs (`no_log`) is kept out of this too.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: task_results
type: aggregate
short_description: Writes down which tasks changed which host, and what they said of it
description: Appends to the file that the variable PLUMBLINE_DRIFT_RESULTS of the environment names.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_results"
    CALLBACK_NEEDS_ENABLED = False

    def v2_runner_on_ok(self, result: Any) -> None:
        everything = os.environ.get("PLUMBLINE_DRIFT_ALL")
        if not result.is_changed() and not everything:
            return
        line = {
            "host": result.host.get_name(),
            "task": result.task.get_name(),
            "action": result.task.action,
            "hidden": bool(result.task.no_log),
            "result": result.result,
        }
        with Path(os.environ["PLUMBLINE_DRIFT_RESULTS"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")
