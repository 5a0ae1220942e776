"""Filters for MIG; what they do is in cluster/mig.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster import mig


def mig_devices(gpus: Mapping[str, Any]) -> list[str]:
    """The device files that slurmd waits for: the last GPU, and its last instance, of node_gpus."""
    count = int(gpus["count"])
    if not count:
        return []
    last = mig.instances(count, gpus.get("mig") or {})[-1:]
    return [f"/dev/nvidia{count - 1}", *(instance.devices[-1] for instance in last)]


def mig_problems(layout: Mapping[str, Any], model: str) -> list[str]:
    """What is wrong with a layout, as sentences."""
    strange = [name for name in layout if not mig.PROFILE.fullmatch(str(name))]
    if strange:
        return [f"{', '.join(map(str, strange))} is no profile such as 1g.10gb."]
    return list(mig.problems(model, {name: int(each) for name, each in layout.items()}))


def mig_plan(layout: Mapping[str, Any], model: str, count: int) -> dict[str, Any]:
    """What the node's program reads."""
    return mig.plan(model, int(count), {name: int(each) for name, each in layout.items()})


def mig_described(gpus: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the driver says of instances, as the action nvml has it, in the words of node_gpus.

    Empty without any; for GPUs that are not all cut alike, which cannot be declared, one by one.
    """
    layouts: list[dict[str, int]] = []
    for gpu in gpus:
        names = [instance["name"] for instance in gpu["values"].get("mig_instances") or ()]
        layouts.append(Counter(name.rpartition(" MIG ")[2] for name in names))
    if not any(layouts):
        return {}
    alike = all(layout == layouts[0] for layout in layouts)
    return {"mig": dict(layouts[0])} if alike else {"mig_of_each_gpu": [*map(dict, layouts)]}


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "mig_described": mig_described,
            "mig_devices": mig_devices,
            "mig_plan": mig_plan,
            "mig_problems": mig_problems,
        }
