"""Waits for a build of Slurm on a node, and says every half minute how far it is.

The build is a unit of the node's systemd: a run that ends, or loses its connection, does not end
it, and the next run waits for the same build.
"""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.common.text.converters import to_text
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

PAUSE_S = 5
SAY_S = 30


@dataclass(frozen=True, slots=True)
class State:
    running: bool
    done: bool
    at: str  # what it is doing
    compiled: int  # files
    words: str  # the end of what it said of errors


def question(folder: str, unit: str) -> str:
    """The command that prints the lines that `state` reads."""
    there = shlex.quote(folder)
    return (
        f"cd {there} || exit 1; "
        # In this order: a build that ends in between is done.
        f"echo active=$(systemctl is-active {shlex.quote(unit)}); "
        "echo done=$(test -e packages.tar && echo yes); "
        "echo at=$(cat progress 2>/dev/null); "
        "echo compiled=$(find work -name '*.o' 2>/dev/null | wc -l); "
        "printf 'words=%s\\n' \"$(grep -E '(error:|Error [0-9]|^E: |unmet)' log 2>/dev/null "
        "| tail -n 3 | cut -c 1-300 | paste -s -d '|')\""
    )


def state(answer: str) -> State:
    lines = dict(re.findall(r"^(\w+)=(.*)$", answer, re.MULTILINE))
    return State(
        running=lines.get("active") in ("active", "activating", "deactivating"),
        done=lines.get("done") == "yes",
        at=lines.get("at", ""),
        compiled=int(lines.get("compiled") or 0),
        words=" / ".join(filter(None, map(str.strip, lines.get("words", "").split("|")))),
    )


def progress_line(host: str, now: State, seconds: float) -> str:
    """A line of progress."""
    files = f", {now.compiled} files compiled" if now.compiled else ""
    return f"  {host}: {now.at or 'begins'}{files}, {seconds / 60:.1f} min"


class ActionModule(ActionBase):
    """`slurm_build_progress: {folder: …, unit: …, timeout: seconds}`; fails with one sentence."""

    _requires_connection = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        ansible: Any = self  # whose methods have no types
        _, arguments = ansible.validate_argument_spec(
            argument_spec={
                "folder": {"type": "str", "required": True},
                "unit": {"type": "str", "required": True},
                "timeout": {"type": "int", "required": True},
            }
        )
        folder, unit = arguments["folder"], arguments["unit"]
        host = str((task_vars or {}).get("inventory_hostname", ""))
        began = last = time.monotonic()
        while True:
            # Without a terminal, whose lines end otherwise.
            answer = ansible._low_level_execute_command(question(folder, unit), sudoable=False)
            now, seconds = state(to_text(answer["stdout"])), time.monotonic() - began
            if now.done:
                return {**result, "changed": False}
            if not now.running:
                why = now.words or "it says nothing"
                return {
                    **result,
                    "failed": True,
                    "msg": f"Slurm was not built on {host}, when it {now.at or 'began'}: {why}; "
                    f"all of it is in {folder}/log there.",
                }
            if seconds > arguments["timeout"]:
                return {
                    **result,
                    "failed": True,
                    "msg": f"Slurm is not built on {host} after {seconds / 60:.0f} min; it goes on "
                    "there, and another run waits for it.",
                }
            if time.monotonic() - last >= SAY_S:
                Display().display(progress_line(host, now, seconds))
                last = time.monotonic()
            time.sleep(PAUSE_S)
