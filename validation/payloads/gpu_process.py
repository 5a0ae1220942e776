"""A process that measures one GPU, seen from the one that started it.

It is told what to do in lines of JSON on its standard input and answers each with one line. A call
into a driver that hangs cannot be ended from within, so whoever waits sets a limit, and ends the
whole process group when it has passed: the payload itself never touches a GPU and always answers.

The process finds the package where this one found it, which on a node is an archive that lies in
memory and is known by a file descriptor alone (see gpu_worker).
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ANSWER_LIMIT = 1 << 20  # bytes of one answer: more is none
_DEATH_S = 5.0  # a process that the kernel cannot end waits for a driver
# With -I nothing but this says where the package is: a folder, or the archive in memory.
SCRIPT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from validation.payloads.gpu_worker import main; main()"
)


class Lost(Exception):
    """The process hung or ended; the message says which, in one sentence without a subject."""


def command() -> list[str]:
    """What starts a worker."""
    return [sys.executable, "-I", "-c", SCRIPT, _root()]


def _root() -> str:
    """The folder or archive that this package was imported from."""
    return str(Path(__file__).parents[2])


class Process:
    """One worker. Every method but `end` raises Lost, and afterwards the process is gone."""

    def __init__(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        # In memory: a full /tmp must not matter. As a file, for `end` is called more than once, and
        # the number that it had may be another thread's by then.
        self._stderr = os.fdopen(os.memfd_create("stderr"), "rb", buffering=0)
        self._rest = b""
        archive = re.fullmatch(r"/proc/self/fd/(\d+)", _root())
        try:
            self._process = subprocess.Popen(
                list(arguments),
                env=dict(environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                start_new_session=True,
                pass_fds=(int(archive[1]),) if archive else (),
            )
        except OSError as error:
            self._stderr.close()
            raise Lost(f"could not be started: {error.strerror}") from error

    def tell(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._died()

    def answer(self, limit_s: float) -> dict[str, Any]:
        """The next line that the worker writes, at the latest after so many seconds."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = self._clock() + limit_s
        while b"\n" not in self._rest:
            left = deadline - self._clock()
            ready = left > 0 and select.select([descriptor], [], [], left)[0]
            if not ready:
                gone = self.end()
                # Of a long limit a moment may be gone before the worker is asked.
                seconds = round(limit_s, 1 if limit_s < 10 else None)
                raise Lost(
                    f"did not end in {seconds:g} s and was killed"
                    + ("" if gone else "; the kernel cannot end it: it waits for the driver")
                )
            part = os.read(descriptor, 1 << 16)
            self._rest += part
            if not part or len(self._rest) > ANSWER_LIMIT:
                self._died()
        line, self._rest = self._rest.split(b"\n", 1)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.end()
            raise Lost("answered with something that is no JSON object")
        return answer

    def kill(self) -> None:
        """Ends the process and all that it started; whoever waits for an answer hears of it."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> bool:
        """The same, and tidies up; whether the process is gone."""
        self.kill()
        gone = True
        try:
            self._process.wait(_DEATH_S)
        except subprocess.TimeoutExpired:
            gone = False
            self._process.returncode = -signal.SIGKILL  # nobody shall wait for it again
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        return gone

    def _died(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_S)
        status, words = self._process.returncode, self._last_words()
        self.end()
        how = "closed its output" if status is None else _ending(status)
        raise Lost(f"{how}{': ' + words if words else ''}")

    def _last_words(self) -> str:
        """The last line on its standard error."""
        size = os.fstat(self._stderr.fileno()).st_size
        text = os.pread(self._stderr.fileno(), 4096, max(0, size - 4096)).decode("utf-8", "replace")
        lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
        return lines[-1][:200] if lines else ""


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
