"""This machine is the login node."""

import os
import signal
import socket
import subprocess
from contextlib import suppress

from validation.errors import TransportError
from validation.transport import Completed


class Here:
    def __init__(self) -> None:
        self.via = f"{socket.gethostname()} (this machine)"
        self.notes: tuple[str, ...] = ()

    def run(self, script: str, stdin: bytes = b"", timeout_s: float = 60) -> Completed:
        # A session of its own: Ctrl-C in the terminal is for us, not for what runs below.
        with subprocess.Popen(
            ["/bin/sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(stdin, timeout=timeout_s)
            except subprocess.TimeoutExpired as error:
                _kill(process)
                raise TransportError(f"this machine gave no answer in {timeout_s:g} s") from error
            except BaseException:
                _kill(process)
                raise
        return Completed(
            process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        )

    def elsewhere(self) -> None:
        return None


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
