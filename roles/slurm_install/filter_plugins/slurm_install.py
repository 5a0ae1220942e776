"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.slurm_install.plugin_utils import install, versions


def _change(
    answer: str, packed_by: str, version: str = "", upgrades: bool = False
) -> dict[str, Any]:
    change = install.change(install.read(answer), packed_by, version, upgrades)
    return {
        "names": list(change.names),
        "remove": list(change.remove),
        "version": change.version,
    }


def _release(answer: str) -> str:
    return versions.release(install.installed_version(answer))


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "slurm_install_problems": install.problems,
            "slurm_install_version": install.wanted_version,
            "slurm_install_folder": install.folder,
            "slurm_install_kind": install.kind,
            "slurm_install_builders": install.builders,
            "slurm_install_change": _change,
            "slurm_install_change_problems": install.change_problems,
            "slurm_install_full": install.full,
            "slurm_install_from": _release,
            "slurm_install_step": install.step,
            "slurm_install_kept": install.kept,
            "slurm_install_pattern": install.pattern,
            "slurm_install_complaint": install.complaint,
        }
