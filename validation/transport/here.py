"""This machine is the login node."""

import os
import socket

from cluster import processes
from cluster.processes import Completed
from validation.errors import TransportError


class Here:
    def __init__(self) -> None:
        self.via = f"{socket.gethostname()} (this machine)"
        self.notes: tuple[str, ...] = ()

    def run(self, script: str, stdin: bytes = b"", timeout_s: float = 60) -> Completed:
        # A session of its own: Ctrl-C in the terminal is for us, not for what runs below.
        try:
            return processes.run(
                ["/bin/sh", "-c", script],
                timeout_s,
                stdin=stdin,
                environment=os.environ,
                any_status=True,
                own_session=True,
            )
        except processes.CommandFailed as error:
            raise TransportError(f"this machine: {error}") from error

    def elsewhere(self) -> None:
        return None
