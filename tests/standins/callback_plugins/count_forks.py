"""Writes a line HOST [near] ok|skipped|… for each task on each host; `near` took no process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.executor.process.worker import WorkerProcess
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: count_forks
type: aggregate
short_description: Writes down each task on each host
description: >-
  Appends a line C(HOST KIND) to the file that $COUNT_FORKS names, if it names one, for each task on
  a host; C(near KIND) is the host's where Ansible began no process for it.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "count_forks"
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self) -> None:
        super().__init__()
        self._forked: set[tuple[str, str]] = set()
        start = WorkerProcess.start

        def noted(worker: Any) -> None:
            self._forked.add((worker._host.get_name(), worker._task._uuid))
            start(worker)

        anyones: Any = WorkerProcess
        anyones.start = noted

    def _note(self, kind: str, result: Any) -> None:
        name = os.environ.get("COUNT_FORKS")
        # What a run does by itself takes no process.
        if name and result._task.action not in ("meta", "ansible.builtin.meta"):
            host = result._host.get_name()
            near = "" if (host, result._task._uuid) in self._forked else "near "
            with Path(name).open("a", encoding="utf-8") as file:
                file.write(f"{host} {near}{kind}\n")

    def v2_runner_on_ok(self, result: Any) -> None:
        self._note("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        del ignore_errors
        self._note("failed", result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._note("skipped", result)
