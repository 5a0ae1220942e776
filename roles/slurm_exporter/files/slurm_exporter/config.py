"""What the exporter is told: /etc/plumbline/slurm_exporter.json, written by the role."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path("/etc/plumbline/slurm_exporter.json")
COLLECTORS = ("nodes", "partitions", "jobs", "fairshare", "scheduler", "rpcs")
COMMANDS = 4  # in one round, at most


class BadConfig(Exception):
    """One sentence: why the file cannot be used."""


@dataclass(frozen=True)
class ExporterSettings:
    """interval_s between two rounds; limit_s for one command of a round. `openmetrics`: slurmctld
    has an OpenMetrics endpoint, which Prometheus asks. `per_job`: series for each job with GPUs.
    """

    file: Path
    interval_s: float
    limit_s: float
    collectors: tuple[str, ...]
    openmetrics: bool
    per_job: bool


def read(path: Path = FILE) -> ExporterSettings:
    """Raises BadConfig for a file that is not there, or is not what the role writes."""
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise BadConfig(f"{path} has no {error.args[0]}") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise BadConfig(f"{path}: {error}") from None


def parse(document: Mapping[str, Any]) -> ExporterSettings:
    """Raises KeyError, TypeError or ValueError for anything else than the role writes."""
    config = ExporterSettings(
        file=Path(document["file"]),
        interval_s=float(document["interval_s"]),
        limit_s=float(document["limit_s"]),
        collectors=tuple(document["collectors"]),
        openmetrics=_flag(document["openmetrics"]),
        per_job=_flag(document["per_job"]),
    )
    if unknown := [name for name in config.collectors if name not in COLLECTORS]:
        raise ValueError(f"there is no collector {unknown[0]}; there are {', '.join(COLLECTORS)}")
    if not 0 < COMMANDS * config.limit_s <= config.interval_s:
        raise ValueError(
            f"{COMMANDS} commands of {config.limit_s:g} s do not fit into {config.interval_s:g} s"
        )
    if config.file.suffix != ".prom":
        raise ValueError(f"{config.file} does not end in .prom; node_exporter would not read it")
    return config


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value
