"""Lets go of the hold (action plugin of the same name) at the end of a run.

On this machine a hold ends with its process anyway. This is for control nodes that share a home:
one cannot see whether the other's processes live.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: hold
type: aggregate
short_description: Lets go of the hold on the inventory at the end of a run
description: Empties the file that the action plugin C(hold) wrote for this process.
"""


def let_go(path: Path, pid: int, host: str) -> None:
    """Empty the file if the hold is that process's; another's is left alone."""
    with suppress(OSError, ValueError, KeyError), path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        hold = json.load(file)
        if (hold["pid"], hold["host"]) == (pid, host):
            file.truncate(0)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "hold"
    CALLBACK_NEEDS_ENABLED = False

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if path := stats.custom.get("_run", {}).get("cluster_hold"):
            let_go(Path(path), os.getpid(), socket.gethostname())
