"""plumbline-slurm-exporter: what Slurm's controller knows, for Prometheus.

    plumbline-slurm-exporter           the daemon: one file, anew every interval
    plumbline-slurm-exporter --once    one round on standard output, for a look

Exit status: 0 it was ended, or every collector went well; 1 one of them failed; 2 it has no
configuration that can be used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster import version
from roles.slurm_exporter.files.slurm_exporter import (
    commands,
    diagnostics,
    jobs,
    nodes,
    series,
    shares,
)
from roles.slurm_exporter.files.slurm_exporter.common import Collector, Exporter, Once
from roles.slurm_exporter.files.slurm_exporter.config import FILE, BadConfig, ExporterSettings, read

NAME = "slurm"
# scontrol and sdiag of 22.05 have no JSON; until 24.11 it was another document in each version.
_JSON = (24, 11)
_NATIVE_GPUS = (26, 5)

Run = Callable[[Sequence[str]], str]
Version = Callable[[], tuple[int, int]]


def collectors(config: ExporterSettings, run: Run, version: Version) -> list[Collector]:
    """Those of one round. What two of them need is asked once: nodes, statistics."""

    def asked_nodes() -> Sequence[nodes.SlurmNode]:
        if version() >= _JSON:
            return nodes.from_json(run(nodes.JSON))
        return nodes.from_text(run(nodes.TEXT))

    def asked_statistics() -> diagnostics.Diagnostics:
        if version() >= _JSON:
            return diagnostics.from_json(run(diagnostics.JSON))
        return diagnostics.from_text(run(diagnostics.TEXT))

    def native() -> series.Native:
        return series.Native(config.openmetrics, config.openmetrics and version() >= _NATIVE_GPUS)

    node_list, statistics = Once(asked_nodes), Once(asked_statistics)
    known = {
        "nodes": lambda: series.nodes(node_list(), native()),
        "partitions": lambda: series.partitions(node_list(), native()),
        "jobs": lambda: series.jobs(jobs.parse(run(jobs.COMMAND)), native(), config.per_job),
        "fairshare": lambda: series.fairshare(shares.parse(run(shares.COMMAND))),
        "scheduler": lambda: series.scheduler(statistics()),
        "rpcs": lambda: series.rpcs(statistics()),
    }
    # The scheduler's names are all Slurm's own.
    left_out = {"scheduler"} if config.openmetrics else set()
    return [Collector(name, known[name]) for name in config.collectors if name not in left_out]


def exporter(config: ExporterSettings) -> Exporter:
    """Slurm's version is asked until it is known, then never again."""
    known: list[tuple[int, int]] = []

    def version() -> tuple[int, int]:
        if not known:
            known.append(commands.version(config.limit_s))
        return known[0]

    run = partial(commands.run, limit_s=config.limit_s)
    return Exporter(NAME, config.file, lambda: collectors(config, run, version))


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    try:
        config = read(options.config)
    except BadConfig as error:
        print(f"plumbline-slurm-exporter: {error}", file=sys.stderr)
        return 2
    daemon = exporter(config)
    if not options.once:
        daemon.run(config.interval_s)
    with TemporaryDirectory() as folder:
        daemon.file = Path(folder) / config.file.name
        daemon.round()
        print(daemon.file.read_text(encoding="utf-8"), end="")
    return 1 if daemon.failing else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    summary, _, rest = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="plumbline-slurm-exporter",
        description=f"{summary}\n\n{rest}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, default=FILE, metavar="FILE")
    parser.add_argument("--once", action="store_true", help="one round on standard output")
    version.add_option(parser)
    return parser.parse_args(arguments)
