"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from roles.nvidia_driver.plugin_utils import packages, persistence, rows


def _packages(table: packages.Table, wish: Mapping[str, Any], system: str) -> dict[str, Any]:
    """The packages of a driver, or its `problems`; see packages.Choice."""
    request = packages.Wish(
        source=str(wish["source"]),
        branch=int(wish["branch"]),
        version=str(wish["version"]),
        modules=str(wish["modules"]),
        kernel_modules=bool(wish["kernel_modules"]),
        compute_only=bool(wish["compute_only"]),
        peermem=bool(wish["peermem"]),
        storage=bool(wish["storage"]),
        model=str(wish["model"]),
        count=int(wish["count"]),
    )
    return asdict(packages.choose(table, request, system))


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvidia_driver_packages": _packages,
            "nvidia_driver_persistenced": persistence.command,
            "nvidia_driver_rows": rows.rows,
        }
