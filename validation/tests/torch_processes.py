"""Processes that begin with torch loaded: a fork in place of two seconds of imports.

A server loads the libraries once for each process that runs tests, and forks whatever is asked for.
Nothing of this checkout is loaded there: what a test is about is imported by the process that it
starts. That a payload finds all it needs without the server has a test in test_payloads_ranks.

(multiprocessing's forkserver is waited for by nobody, so what its processes took is in no one's
CPU time, and the tests are held to theirs.)
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests import cpu_limit

ROOT = Path(__file__).parents[2]
LIBRARIES = (
    "torch",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.nn.functional",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.nn.parallel",
    "torch.optim",
)
PAUSE_S = 0.02


@dataclass(frozen=True)
class Order:
    """A program in Python, as `python -c PROGRAM ARGUMENTS` runs it."""

    program: str
    arguments: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: str = str(ROOT)


# --- where the tests are ------------------------------------------------------------------------


class Process:
    """A process that was started. What it says can be read at any time."""

    def __init__(self, order: Order, out: Path, err: Path) -> None:
        self._out, self._err = out, err
        self._status: int | None = None
        self.pid: int = _ask({"start": asdict(order), "out": str(out), "err": str(err)})

    @property
    def status(self) -> int | None:
        """Its exit status, negative for the signal that ended it; None while it runs."""
        if self._status is None:
            self._status = _ask({"status": self.pid})
        return self._status

    def wait(self, seconds: float = 180) -> int:
        """Its exit status. Raises TimeoutError if it does not end in time."""
        until = time.monotonic() + seconds
        while (status := self.status) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"not ended after {seconds} s: {self.err}")
            time.sleep(PAUSE_S)
        return status

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, if it still runs."""
        if self.status is None:
            os.kill(self.pid, number)

    def end(self) -> None:
        """Kills it if it still runs."""
        self.send(signal.SIGKILL)
        self.wait()

    @property
    def out(self) -> str:
        """Its standard output so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """Its standard error so far."""
        return self._err.read_text()


@contextmanager
def started(orders: Sequence[Order]) -> Iterator[list[Process]]:
    """Starts the processes together. Those that still run at the end of the block are killed."""
    processes: list[Process] = []
    with TemporaryDirectory() as folder:
        try:
            for number, order in enumerate(orders):
                out, err = (Path(folder) / f"{number}.{stream}" for stream in ("out", "err"))
                out.touch()
                err.touch()
                processes.append(Process(order, out, err))
            yield processes
        finally:
            for process in processes:
                process.end()


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Ends with the process that asked for it, which waits for it and is charged for its work.

    What it takes until it has loaded all is no test's own: whichever came first would pay for it.
    """
    server = subprocess.Popen(
        [sys.executable, "-m", "validation.tests.torch_processes"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)
    assert server.stdout is not None
    cpu_limit.share(float(server.stdout.readline() or 0))
    return server


def _ask(question: Mapping[str, Any]) -> Any:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(question) + "\n")
    server.stdin.flush()
    if not (answer := server.stdout.readline()):
        raise RuntimeError("the server has ended; what it said is on standard error")
    return json.loads(answer)


# --- the server -----------------------------------------------------------------------------------


def serve() -> Order | None:
    """Answers until nobody asks any more. Returns a second time in each process that it starts,
    with what that one is to do.
    """
    for line in sys.stdin:
        match json.loads(line):
            case {"start": order, "out": str(out), "err": str(err)}:
                answer: int | None = os.fork()
                if answer == 0:
                    _redirect(out, err)
                    return Order(**order)
            case {"status": int(pid)}:
                ended, status = os.waitpid(pid, os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if ended else None
        print(json.dumps(answer), flush=True)
    return None


def _redirect(out: str, err: str) -> None:
    streams = ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY))
    for descriptor, path, how in streams:
        file = os.open(path, how | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)


def _become(order: Order) -> None:
    os.environ.clear()
    os.environ.update(order.environ)
    os.chdir(order.cwd)
    sys.argv[:] = ["-c", *order.arguments]
    sys.path[0] = order.cwd
    exec(compile(order.program, "<program>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    for library in LIBRARIES:
        importlib.import_module(library)
    print(time.process_time(), flush=True)
    if (task := serve()) is not None:
        _become(task)
