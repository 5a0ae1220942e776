"""Versions of packages, as modules on a node and plugins on the control node read them.

Modules find it as ansible.module_utils.package_version.
"""

from __future__ import annotations


def fits(version: str, wanted: str) -> bool:
    """Whether a version is the one that is wanted, with or without its epoch and revision."""
    upstream = version.split(":", 1)[-1]
    return wanted in {version, upstream, version.rsplit("-", 1)[0], upstream.rsplit("-", 1)[0]}


def begins(version: str, wanted: str) -> bool:
    """Whether an upstream version is of the wanted branch (580), or is the wanted one (580.95)."""
    return f"{version}.".startswith(f"{wanted}.")
