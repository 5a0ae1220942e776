"""What depends on a GPU's model, for roles: `{{ 'h100_sxm' | gpu }}` and `gpu_names`.

See plugin_utils/gpus.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Ansible loads a plugin by its path; what plugins share is a package from the checkout's root.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from playbooks.plugin_utils import gpus


def _gpu(model: str) -> dict[str, Any]:
    """The fields of plugin_utils.gpus.Gpu."""
    return asdict(gpus.gpu(model))


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu": _gpu, "gpu_names": gpus.product_names}
