"""What depends on a GPU's model, for roles: `{{ 'h100_sxm' | gpu }}` and `gpu_names`.
`gpus_near_cores` says which cores are near a node's GPUs.

The table is cluster/gpus.yml; the names are those of the validation's thresholds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from cluster import gpus
from cluster.slurm import affinity

THRESHOLDS = Path(__file__).resolve().parents[2] / "validation" / "thresholds"


def _gpu(model: str) -> dict[str, Any]:
    """The fields of cluster.gpus.Gpu."""
    return asdict(gpus.gpu(model))


def product_names(model: str) -> list[str]:
    """The names by which NVML may know a model, those that the validation holds it to; none for a
    model that is a site's own.
    """
    if not any(model == path.stem for path in THRESHOLDS.glob("*.yml")):
        return []
    document = yaml.safe_load((THRESHOLDS / f"{model}.yml").read_text(encoding="utf-8"))
    return [str(name) for name in document.get("nvml_names", {}).get("names", ())]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu": _gpu, "gpu_names": product_names, "gpus_near_cores": affinity.described}
