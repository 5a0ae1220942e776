"""Waits while slurmdbd converts the database of an older release, and says how long it has.

slurmdbd listens when it is done. The conversion is the daemon's: a run that ends, or loses its
connection, does not end it, and the next run waits for the same one.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.common.text.converters import to_text
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

PAUSE_S = 2
SAY_S = 30
# systemd starts it again after it died, every few seconds.
DEATHS = 3

LOG = "/var/log/slurm/slurmdbd.log"


@dataclass(frozen=True, slots=True)
class State:
    active: bool
    listens: bool
    restarts: int
    words: str  # the end of its log
    errors: str


def question(port: int) -> str:
    """The command that prints the lines that `state` reads."""
    said = f"sed 's/^\\[[^]]*\\] //' {LOG} 2>/dev/null"  # without the time
    return (
        "systemctl show slurmdbd --property=ActiveState,NRestarts; "
        f"ss --listening --tcp --numeric --no-header 'sport = :{port}' | grep -q . && "
        "echo listens; "
        f"{said} | tail -n 1 | cut -c 1-200 | sed 's/^/words=/'; "
        f"{said} | tail -n 50 | grep -E 'error|fatal' | tail -n 2 | cut -c 1-300 | "
        "paste -s -d '|' | sed 's/^/errors=/'; true"
    )


def state(answer: str) -> State:
    # Over a terminal, which Ansible asks SSH for where sudo may want one, lines end with both.
    answer = answer.replace("\r\n", "\n")
    lines = dict(re.findall(r"^(\w+)=(.*)$", answer, re.MULTILINE))
    return State(
        active=lines.get("ActiveState") in ("active", "activating", "reloading"),
        listens=re.search(r"^listens$", answer, re.MULTILINE) is not None,
        restarts=int(lines.get("NRestarts") or 0),
        words=lines.get("words", "").strip(),
        errors=" / ".join(filter(None, map(str.strip, lines.get("errors", "").split("|")))),
    )


def progress_line(host: str, now: State, seconds: float) -> str:
    """A line of progress."""
    said = f"; its log ends: {now.words}" if now.words else ""
    return f"  {host}: slurmdbd is converting the database, {seconds / 60:.0f} min{said}"


def failure(host: str, now: State, restarts_before: int) -> str:
    """Why there is nothing to wait for any more; "" while there is."""
    deaths = now.restarts - restarts_before
    if now.active and deaths < DEATHS:
        return ""
    what = f"ended {deaths} times" if now.active else "does not run"
    why = now.errors or "its log has no error"
    return (
        f"slurmdbd on {host} {what} while it converts the database: {why}; correct the cause and "
        "run the playbook again, which goes on with the conversion, or go back by the dump "
        "(docs/operate/slurm-versions.md)."
    )


class ActionModule(ActionBase):
    """`slurmdbd_conversion: {port: …}`; waits as long as slurmdbd is active."""

    _requires_connection = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        ansible: Any = self  # whose methods have no types
        _, arguments = ansible.validate_argument_spec(
            argument_spec={"port": {"type": "int", "required": True}}
        )
        host = str((task_vars or {}).get("inventory_hostname", ""))
        began = last = time.monotonic()
        before: int | None = None
        while True:
            answer = ansible._low_level_execute_command(question(arguments["port"]))
            now, seconds = state(to_text(answer["stdout"])), time.monotonic() - began
            if now.listens:
                return {**result, "changed": False, "seconds": round(seconds)}
            before = now.restarts if before is None else before
            if why := failure(host, now, before):
                return {**result, "failed": True, "msg": why}
            if time.monotonic() - last >= SAY_S:
                Display().display(progress_line(host, now, seconds))
                last = time.monotonic()
            time.sleep(PAUSE_S)
