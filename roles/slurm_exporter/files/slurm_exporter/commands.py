"""The one thing here that starts processes: a command of Slurm's with a limit, in a clean place."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from roles.slurm_exporter.files.slurm_exporter.common import Failed

# What a site builds itself is often outside a daemon's PATH.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin"
_VERSION = re.compile(r"\b(\d+)\.(\d+)\.")


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Nothing that changes what Slurm's commands print (SQUEUE_FORMAT, SLURM_TIME_FORMAT …)."""
    kept = {name: given[name] for name in ("SLURM_CONF", "TZ") if name in given}
    return {"LC_ALL": "C", "PATH": given.get("PATH") or PATH, **kept}


def run(command: Sequence[str], limit_s: float) -> str:
    """What it prints. Raises Failed where it fails, does not end in time, or cannot be started."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=environment(os.environ),
            start_new_session=True,
        )
    except OSError as error:
        raise Failed(f"{command[0]} cannot be started: {error.strerror}") from None
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]} did not end within {limit_s:g} s") from None
    finally:
        _end(process)
    if process.returncode != 0:
        message = " ".join(err.split()) or f"exit status {process.returncode}"
        raise Failed(f"{command[0]}: {message[:300]}")
    return out


def _end(process: subprocess.Popen[str]) -> None:
    """With all that it started. One that cannot be killed is left behind, not waited for."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def version(limit_s: float) -> tuple[int, int]:
    """Slurm's, such as (24, 11); nobody is asked but the command itself. Raises Failed."""
    text = run(("scontrol", "--version"), limit_s)
    match = _VERSION.search(text)
    if match is None:
        raise Failed(f"scontrol --version says {text.strip()[:80]!r}")
    return int(match[1]), int(match[2])
