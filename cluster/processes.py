"""Short commands: each has a limit, and what goes wrong with one is told in one sentence."""

from __future__ import annotations

import locale
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cluster.text import printable

# For a daemon that is given no PATH: what a site builds itself is often outside of a usual one.
DAEMON_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin"
_LONGEST = 300  # of a complaint, in characters
_KILLED_S = 1.0  # how long a killed process may take to be gone


@dataclass(frozen=True, slots=True)
class Completed:
    """A command or script that ran to its end. Output is text; what is no UTF-8 is replaced."""

    status: int
    stdout: str
    stderr: str


def utf8_locale() -> dict[str, str]:
    """What to add to the environment of Ansible, which refuses any encoding but UTF-8.

    Its sentence does not say what to set, and a bare machine may have no locale at all.
    """
    try:
        locale.setlocale(locale.LC_CTYPE, "")
        encoding = locale.nl_langinfo(locale.CODESET)
    except locale.Error:
        encoding = ""
    return {} if encoding == "UTF-8" else {"LC_ALL": "C.UTF-8"}


class CommandFailed(Exception):
    """One sentence without its end: the program, and what went wrong.

    completed  None for a command that did not end by itself
    complaint  the last line that it wrote to standard error, or else to standard output
    """

    def __init__(
        self, command: Sequence[str], reason: str, completed: Completed | None = None
    ) -> None:
        self.completed = completed
        output = (completed.stderr.strip() or completed.stdout.strip()) if completed else ""
        self.complaint = printable(output.splitlines()[-1], _LONGEST) if output else ""
        super().__init__(f"{command[0]} {reason}" + (self.complaint and f": {self.complaint}"))


def run(
    command: Sequence[str],
    limit_s: float | None,
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    one_stream: bool = False,
    any_status: bool = False,
    own_session: bool = False,
) -> Completed:
    """What a command printed. Raises CommandFailed.

    environment  the whole of it; without one it is ours, in the C locale
    one_stream   standard error goes where standard output goes
    any_status   whether a command may end with an exit status other than 0
    own_session  Ctrl-C does not reach the command, and what it started is killed with it. Not for
                 what has to end with our own process group.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if one_stream else subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"} if environment is None else environment,
            start_new_session=own_session,
        )
    except OSError as error:
        raise CommandFailed(command, f"cannot be started: {error.strerror}") from None
    try:
        out, err = process.communicate(stdin, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise CommandFailed(command, f"did not answer within {limit_s:g} s") from None
    finally:
        _end(process, own_session)
    completed = Completed(
        process.returncode, out.decode(errors="replace"), (err or b"").decode(errors="replace")
    )
    if completed.status != 0 and not any_status:
        raise CommandFailed(command, f"ended with exit status {completed.status}", completed)
    return completed


def _end(process: subprocess.Popen[bytes], own_session: bool) -> None:
    """One that cannot be killed is left behind, not waited for."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            if own_session:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_KILLED_S)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):  # what was still to be sent to it
                pipe.close()
