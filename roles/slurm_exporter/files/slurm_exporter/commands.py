"""Commands of Slurm's: with a limit, and in a clean environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from cluster import processes
from cluster.exporter import Failed

_VERSION = re.compile(r"\b(\d+)\.(\d+)\.")


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Nothing that changes what Slurm's commands print (SQUEUE_FORMAT, SLURM_TIME_FORMAT …)."""
    kept = {name: environ[name] for name in ("SLURM_CONF", "TZ") if name in environ}
    return {"LC_ALL": "C", "PATH": environ.get("PATH") or processes.DAEMON_PATH, **kept}


def run(command: Sequence[str], limit_s: float) -> str:
    """What it prints. Raises Failed where it fails, does not end in time, or cannot be started."""
    try:
        return processes.run(
            command, limit_s, environment=environment(os.environ), own_session=True
        ).stdout
    except processes.CommandFailed as error:
        raise Failed(str(error)) from None


def version(limit_s: float) -> tuple[int, int]:
    """Slurm's, such as (24, 11); nobody is asked but the command itself. Raises Failed."""
    text = run(("scontrol", "--version"), limit_s)
    match = _VERSION.search(text)
    if match is None:
        raise Failed(f"scontrol --version says {text.strip()[:80]!r}")
    return int(match[1]), int(match[2])
