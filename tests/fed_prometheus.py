"""A Prometheus of a test's own: on loopback, with samples that were fed, gone at the end."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.checkers import checker
from tests.processes import passes

START_S = 20.0


@contextlib.contextmanager
def running(folder: Path, lines: Iterable[str]) -> Iterator[str]:
    """Its address. `lines` are OpenMetrics with times."""
    samples = folder / "samples"
    with samples.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    data = folder / "data"
    create = (*checker("promtool"), "tsdb", "create-blocks-from", "openmetrics")
    passes(*create, samples, data)
    (folder / "prometheus.yml").write_text("{}\n")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [
                *checker("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={data}",
                "--storage.tsdb.retention.time=50y",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(f"http://{address}", server, folder / "log")
            yield f"http://{address}"
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError), opener.open(f"{url}/-/ready", timeout=1) as answer:
            if answer.status == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"Prometheus does not start: {log.read_text()[-2000:]}")
