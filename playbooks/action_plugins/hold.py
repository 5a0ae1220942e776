"""One run at a time on one inventory: the second is refused, with who is at work since when.

The hold is a file beside the inventory that names the process of the run. It needs no tidying up:
a hold whose process is gone (it ended, it was killed, the machine was started again) is free. A
hold of another machine, which happens where control nodes share a home, cannot be judged from here:
it is refused until a person breaks it. The callback of the same name lets go at the end of a run,
so that this is rare.

Below, what is found and what follows from it are functions without Ansible.
"""

from __future__ import annotations

import dataclasses
import fcntl
import getpass
import json
import os
import shlex
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible import context
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from playbooks.plugin_utils import kept


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """Whose run it is. `boot` and `started` tell its process from a later one of that number."""

    user: str
    host: str
    boot: str
    pid: int
    started: str
    since: str
    command: str


def parse(text: str) -> Hold | None:
    """A hold as it was written; None for no hold.

    What cannot be read was cut off in the middle of writing: nobody writes while we look.
    """
    try:
        return Hold(**json.loads(text))
    except (TypeError, ValueError):
        return None


# --- processes -----------------------------------------------------------------------------------


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_time(pid: int) -> str:
    """When a process started, in ticks since the boot; empty when that cannot be seen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name, in parentheses, may hold anything; field 22 is the 20th after it.
    return stat.rpartition(")")[2].split()[19]


def is_alive(pid: int, started: str) -> bool:
    """Whether a process is there and is the one that started then."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's; /proc may be closed to us as well
    return start_time(pid) in {started, ""}


def hold_of(pid: int, command: str) -> Hold:
    """The hold that a process of this machine takes."""
    return Hold(
        user=getpass.getuser(),
        host=socket.gethostname(),
        boot=boot_id(),
        pid=pid,
        started=start_time(pid),
        since=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=command,
    )


# --- the verdict ---------------------------------------------------------------------------------


def refusal(
    held: Hold | None,
    mine: Hold,
    *,
    break_it: bool = False,
    alive: Callable[[int, str], bool] = is_alive,
) -> str:
    """Why a run may not begin beside the hold that was found; empty when it may."""
    if held is None or (held.host, held.boot, held.pid) == (mine.host, mine.boot, mine.pid):
        return ""
    who = f"This inventory is held by {held.user} on {held.host} since {held.since}"
    if held.host != mine.host:
        if break_it:
            return ""
        return (
            f"{who} ({held.command}), and {mine.host} cannot see whether that run is still "
            "active; wait for it, or if you know that it has ended, add -e cluster_hold_break=true."
        )
    if held.boot != mine.boot or not alive(held.pid, held.started):
        return ""
    return (
        f"{who} by process {held.pid} ({held.command}); wait until that run has ended, or end "
        "it, and run this again."
    )


def take(path: Path, mine: Hold, *, break_it: bool = False) -> str:
    """Take the hold, or say why not. No other process looks between the check and the writing.

    The file is locked, so it is written in place and never replaced. Raises OSError.
    """
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if refused := refusal(parse(file.read()), mine, break_it=break_it):
            return refused
        file.truncate(0)
        file.write(f"{json.dumps(dataclasses.asdict(mine))}\n")
        file.flush()
        os.fsync(file.fileno())
    return ""


class ActionModule(ActionBase):
    """`hold: {path: FILE, break: false, secrets: FOLDER}`

    It fails with one sentence when another run has the hold. The run that has it may write secrets,
    so it keeps their folder out of git.

    It runs on the control node, without a connection, for the whole run at once.
    """

    _requires_connection = False
    _supports_check_mode = True
    BYPASS_HOST_LOOP = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        del tmp, task_vars
        path = Path(self._task.args["path"])
        playbooks = [str(playbook) for playbook in context.CLIARGS["args"]]
        limit = ["--limit", context.CLIARGS["subset"]] if context.CLIARGS["subset"] else []
        # A task runs in a child of ansible-playbook.
        mine = hold_of(os.getppid(), shlex.join(["ansible-playbook", *playbooks, *limit]))
        try:
            refused = take(path, mine, break_it=boolean(self._task.args.get("break", False)))
            if not refused:
                kept.keep_out_of_git(Path(self._task.args["secrets"]))
        except OSError as error:
            refused = (
                f"{error.filename or path} cannot be written ({error.strerror}); run this as the "
                "user whom the inventory's folder belongs to, or make the folder writable."
            )
        if refused:
            return {"failed": True, "msg": refused}
        # For the callback that lets go.
        stats = {"data": {"cluster_hold": str(path)}, "per_host": False, "aggregate": False}
        return {"changed": False, "ansible_stats": stats}
