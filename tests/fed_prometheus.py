"""A Prometheus of a test's own: on loopback, with samples that were fed, gone at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests import daemons
from tests.checkers import checker
from tests.processes import passes


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
    address = daemons.free_address()
    command = [
        *checker("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=50y",
        f"--web.listen-address={address}",
    ]
    with daemons.running(command, address, folder / "log") as url:
        yield url
