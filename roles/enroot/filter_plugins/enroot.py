"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.enroot.plugin_utils import host, release, settings


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "enroot_packages": release.packages,
            "enroot_hash_problems": release.hash_problems,
            "enroot_unpinned": release.unpinned,
            "enroot_composed": settings.composed,
            "enroot_setting_problems": settings.problems,
            "enroot_disk_problems": host.disk_problems,
            "enroot_room": host.room,
            "enroot_apparmor": host.apparmor,
            "enroot_sysctls": host.sysctls,
            "enroot_sysctls_amiss": host.sysctls_amiss,
        }
