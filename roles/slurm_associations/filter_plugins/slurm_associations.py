"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Ansible loads a plugin by its path; what plugins share is a package from the checkout's root.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from roles.slurm_associations.plugin_utils import declared, enforced


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "slurm_associations_problems": declared.problems,
            "slurm_associations_unenforced": enforced.unenforced,
            "slurm_associations_not_asked": enforced.not_asked,
            "slurm_associations_locked_out": enforced.locked_out,
        }
