"""The plugins of MPI that a Slurm has: steps start with that of MpiDefault, or not at all.

SchedMD's packages and those of Debian 12 and 13 have mpi/pmix, and Debian's 26.05.5-1 has not
(2026-11-27). slurmctld takes any name; a node says too late that it cannot load the plugin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

KEY = "MpiDefault"
_FILE = re.compile(r"/mpi_(\w+)\.so(?:\s|$)")
_SET = re.compile(rf"^\s*{KEY}\s*=\s*([^\s#]+)", re.IGNORECASE | re.MULTILINE)


def plugins(listing: str) -> list[str]:
    """The plugins whose files a listing has; none where there is no Slurm.

    >>> plugins("/usr/lib/x86_64-linux-gnu/slurm-wlm/mpi_pmi2.so")
    ['none', 'pmi2']
    """
    found = set(_FILE.findall(listing))
    return sorted({*found, "none"}) if found else []


def default(listing: str) -> str:
    """MpiDefault where a site does not say: "" leaves it to Slurm, which takes none."""
    found = plugins(listing)
    return "pmix" if not found or "pmix" in found else ""


def problems(settings: Any, listing: str, host: str) -> list[str]:
    """A sentence where this Slurm has not what a site's settings name."""
    found, wanted = plugins(listing), said(settings)
    if not found or not wanted or wanted in found:
        return []
    return [
        f"slurm_settings.{KEY} is {wanted}, and Slurm on {host} has no such plugin: no step would "
        f"start. It has {_listed(found)}; set one of them, or install packages that have it."
    ]


def lost(text: str, settings: Any, listing: str, version: str) -> list[str]:
    """A sentence where a Slurm to come has not what steps start with: `text` is slurm.conf."""
    found = plugins(listing)
    running = _SET.search(text)
    wanted = said(settings) or (running[1].lower() if running else "none")
    if wanted in found:
        return []
    return [
        f"Slurm {version} has no mpi/{wanted}, with which steps start here ({KEY}): none would "
        f"start any more, and jobs that ask for it would fail. It has {_listed(found)}. Install "
        f"packages that have it, or do without: set slurm_settings: {{{KEY}: none}}."
    ]


def said(settings: Any) -> str:
    """What a site's settings name."""
    if not isinstance(settings, Mapping):
        return ""
    return next(
        (str(value).lower() for key, value in settings.items() if str(key).lower() == KEY.lower()),
        "",
    )


def _listed(found: Sequence[str]) -> str:
    return ", ".join(found) or "none at all"
