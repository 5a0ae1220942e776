"""The role's filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.open_ondemand.plugin_utils import ood


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"open_ondemand_files": ood.files, "open_ondemand_problems": ood.problems}
