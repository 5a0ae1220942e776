"""A Prometheus of a test's own: on loopback, with samples that were fed, gone at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import daemons
from tests.checkers import checker
from tests.processes import passes


@dataclass(frozen=True)
class Recorded:
    """Rules that are evaluated over what was fed, once a minute of the seconds since 1970.

    Rules that need what others record are not among them: promtool asks all of them of what is
    there already.
    """

    rules: Sequence[Mapping[str, Any]]
    start: int
    end: int


@contextlib.contextmanager
def running(folder: Path, lines: Iterable[str], recorded: Recorded | None = None) -> Iterator[str]:
    """Its address. `lines` are OpenMetrics with times."""
    samples = folder / "samples"
    with samples.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    data = folder / "data"
    create = (*checker("promtool"), "tsdb", "create-blocks-from", "openmetrics")
    passes(*create, samples, data)
    if recorded is not None:
        rules = folder / "rules.yml"
        group = {"name": "all", "interval": "1m", "rules": [dict(rule) for rule in recorded.rules]}
        rules.write_text(yaml.safe_dump({"groups": [group]}), encoding="utf-8")
        with _serving(folder, data) as url:
            passes(
                *(*checker("promtool"), "tsdb", "create-blocks-from", "rules", f"--url={url}"),
                *(f"--start={recorded.start}", f"--end={recorded.end}"),
                *(f"--output-dir={folder / 'recorded'}", rules),
            )
        for block in (folder / "recorded").iterdir():
            block.rename(data / block.name)
    with _serving(folder, data) as url:
        yield url


@contextlib.contextmanager
def _serving(folder: Path, data: Path) -> Iterator[str]:
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
