"""The role's filters; what they do is in plugin_utils."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.shared_storage.plugin_utils import exports, folders, mounts


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "shared_storage_export_problems": exports.problems,
            "shared_storage_export_lines": exports.lines,
            "shared_storage_export_folders": exports.folders,
            "shared_storage_folder_problems": folders.problems,
            "shared_storage_folders": folders.with_modes,
            "shared_storage_mount_problems": mounts.problems,
            "shared_storage_of_host": mounts.of_host,
            "shared_storage_document": mounts.document,
            "shared_storage_host_problems": mounts.host_problems,
            "shared_storage_rows": mounts.rows,
        }
