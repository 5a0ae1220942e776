"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from roles.validation_runtime.plugin_utils import builds, requirements, sources


def _torch(
    packages: Sequence[str], requested: str, node: Mapping[str, Any], table: builds.Table, text: str
) -> dict[str, str]:
    """The `build` of torch for a node, or the `problem`; the text of a file wins over packages."""
    lines = list(requirements.entries(text)) if text else list(packages)
    machine = builds.Machine(
        gpu_model=str(node["gpu_model"]),
        driver_branch=int(node["driver_branch"]),
        machine=str(node["machine"]),
    )
    return asdict(builds.choose(lines, requested, machine, table, hashed=bool(text)))


def _lines(packages: Sequence[str], build: str, text: str) -> str:
    """What requirements.txt says on a node."""
    return text or "".join(f"{line}\n" for line in requirements.with_build(packages, build))


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "validation_runtime_torch": _torch,
            "validation_runtime_requirements": _lines,
            "validation_runtime_lacking": requirements.lacking,
            "validation_runtime_indexes": sources.indexes,
            "validation_runtime_platform": sources.platform,
            "validation_runtime_kind": sources.kind,
        }
