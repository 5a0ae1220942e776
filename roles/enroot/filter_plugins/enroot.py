"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Ansible loads a plugin by its path; what plugins share is a package from the checkout's root.
sys.path.append(str(Path(__file__).resolve().parents[3]))

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
