"""What the exporter is told: /etc/plumbline/slurm_exporter.json, written by the role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import settings_file
from cluster.prometheus import Server

FILE = Path("/etc/plumbline/slurm_exporter.json")
COLLECTORS = (
    *("nodes", "partitions", "jobs", "fairshare", "scheduler", "rpcs"),
    *("history", "outcomes", "usage", "xids"),
)
# In one round, at most. Once in ten minutes `history` has two more and `outcomes` one, and `xids`
# asks Prometheus; of several controllers each looks first who is active. The round may be late.
COMMANDS = 4


@dataclass(frozen=True)
class ExporterSettings:
    """interval_s between two rounds; limit_s for one command of a round. `openmetrics`: slurmctld
    has an OpenMetrics endpoint, which Prometheus asks. `per_job`: series for each job with GPUs.
    `ledger`: the file in which history is kept. `accounting`: Slurm has a database of it.
    `controller`: the name of this one, where there are several. `prometheus` is asked by `xids`.
    """

    file: Path
    interval_s: float
    limit_s: float
    collectors: tuple[str, ...]
    openmetrics: bool
    per_job: bool
    ledger: Path
    accounting: bool
    controller: str
    prometheus: Server | None


def read(path: Path = FILE) -> ExporterSettings:
    """Raises BadConfig for a file that is not there, or is not what the role writes."""
    return settings_file.read(path, parse)


def parse(document: Mapping[str, Any]) -> ExporterSettings:
    """Raises KeyError, TypeError or ValueError for anything else than the role writes."""
    config = ExporterSettings(
        file=Path(document["file"]),
        interval_s=float(document["interval_s"]),
        limit_s=float(document["limit_s"]),
        collectors=tuple(document["collectors"]),
        openmetrics=_flag(document["openmetrics"]),
        per_job=_flag(document["per_job"]),
        ledger=Path(document["ledger"]),
        accounting=_flag(document["accounting"]),
        controller=str(document["controller"]),
        prometheus=_server(document["prometheus"], float(document["limit_s"])),
    )
    if unknown := [name for name in config.collectors if name not in COLLECTORS]:
        raise ValueError(f"there is no collector {unknown[0]}; there are {', '.join(COLLECTORS)}")
    if "xids" in config.collectors and config.prometheus is None:
        raise ValueError("the collector xids asks Prometheus, and there is none")
    if not 0 < COMMANDS * config.limit_s <= config.interval_s:
        raise ValueError(
            f"{COMMANDS} commands of {config.limit_s:g} s do not fit into {config.interval_s:g} s"
        )
    if config.file.suffix != ".prom":
        raise ValueError(f"{config.file} does not end in .prom; node_exporter would not read it")
    return config


def _server(document: Mapping[str, Any], limit_s: float) -> Server | None:
    if not document:
        return None
    return Server(
        url=str(document["url"]),
        ca=Path(document["ca"]),
        user=str(document["user"]),
        password=Path(document["password"]),
        limit_s=limit_s,
    )


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value
