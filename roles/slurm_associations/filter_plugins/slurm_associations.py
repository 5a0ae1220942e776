"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.slurm_associations.plugin_utils import declared, enforced, limited


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "slurm_associations_problems": declared.problems,
            "slurm_associations_limited": limited.limited,
            "slurm_associations_unenforced": enforced.unenforced,
            "slurm_associations_not_asked": enforced.not_asked,
            "slurm_associations_locked_out": enforced.locked_out,
        }
