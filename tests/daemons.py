"""Daemons of a test's own: on loopback, ready when the test gets them, gone at its end."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

START_S = 20.0


def free_address() -> str:
    """HOST:PORT that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def running(
    command: Sequence[str], address: str, log: Path, authority: Path | None = None
) -> Iterator[str]:
    """Its URL, once it says at /-/ready that it is ready, as Prometheus and Alertmanager do.

    With an authority it speaks TLS, and is there as soon as it does, whomever it lets in.
    """
    url = f"{'https' if authority else 'http'}://{address}"
    with log.open("w") as file:
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            _wait(url, server, log, authority)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait(url: str, server: subprocess.Popen[bytes], log: Path, authority: Path | None) -> None:
    tls = ssl.create_default_context(cafile=authority) if authority else None
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
    )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with opener.open(f"{url}/-/ready", timeout=1) as answer:
                if answer.status == 200:
                    return
        except urllib.error.HTTPError as error:
            if error.code == 401:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{server.args!r} does not start: {log.read_text()[-2000:]}")
