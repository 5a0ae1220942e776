"""Filters for settings of Slurm's files, and for what its releases read of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cluster import sandbox
from cluster.slurm import key_problems
from cluster.slurm import keys as slurm_keys
from cluster.slurm import sandbox as slurm_sandbox
from cluster.slurm import settings as slurm_settings
from playbooks.plugin_utils.origin import written_at


def _problems(settings: Any, where: str, elsewhere: Mapping[str, str]) -> list[str]:
    """What is wrong with settings, as sentences; `elsewhere` says of what is not for this place."""
    return list(slurm_settings.mapping_problems(where, settings, elsewhere))


def _refused(settings: Any, file: str, release: str, where: str, host: str = "") -> list[str]:
    """What a release of Slurm does not read; "" is any that we support."""
    if not isinstance(settings, Mapping):
        return []  # told by the settings' problems
    return key_problems.refused(settings, file, release, where, host, written_at)


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "slurm_release": slurm_keys.release,
            "slurm_oldest_release": slurm_keys.oldest_release,
            "slurm_keys_read": slurm_keys.read,
            "slurm_keys_refused": _refused,
            "service_sandbox": sandbox.service,
            "slurm_sandbox": slurm_sandbox.sandbox,
            "slurm_wanted_release": slurm_keys.wanted_release,
            "slurm_components_problems": slurm_settings.component_problems,
            "slurm_components_settings": slurm_settings.added,
            "slurm_settings_merged": slurm_settings.merged,
            "slurm_settings_problems": _problems,
        }
