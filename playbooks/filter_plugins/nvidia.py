"""Filters for NVIDIA's software; what they do is in plugin_utils."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from playbooks.plugin_utils import nvidia


def repositories(
    names: Sequence[str],
    facts: Mapping[str, Any],
    mirrors: Mapping[str, str],
    only: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Entries for the role package_repositories."""
    try:
        return nvidia.repositories(names, facts, mirrors, only)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


def hpc_sdk(facts: Mapping[str, Any], mirror: str, fingerprint: str) -> list[dict[str, Any]]:
    """The HPC SDK's entry for the role package_repositories."""
    try:
        return [nvidia.hpc_sdk(facts, mirror, fingerprint)]
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


def hpc_sdk_packages(version: Any, fingerprint: str) -> list[str]:
    """The HPC SDK's packages, for the role user_software."""
    try:
        return nvidia.hpc_sdk_packages(str(version), fingerprint)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvidia_repositories": repositories,
            "hpc_sdk_repositories": hpc_sdk,
            "hpc_sdk_packages": hpc_sdk_packages,
        }
