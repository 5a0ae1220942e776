"""What depends on a GPU's model, for roles: `{{ 'h100_sxm' | gpu }}` and `gpu_names`.

See plugin_utils/gpus.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from playbooks.plugin_utils import gpus


def _gpu(model: str) -> dict[str, Any]:
    """The fields of plugin_utils.gpus.Gpu."""
    return asdict(gpus.gpu(model))


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu": _gpu, "gpu_names": gpus.product_names}
