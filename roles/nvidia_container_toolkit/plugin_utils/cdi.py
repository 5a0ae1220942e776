"""CDI specifications: whether two are of the same GPUs and driver, and which GPUs one has.

https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from ansible.module_utils.common.yaml import yaml_load

KIND = "nvidia.com/gpu"


def read(text: str) -> Any:
    """The specification; None for a text that is none."""
    try:
        document = yaml_load(text)  # in C, where PyYAML has it: a specification is long
    except yaml.YAMLError:
        return None
    return document if isinstance(document, dict) else None


def same(text: str, other: str) -> bool:
    """Whether two specifications are of the same devices and driver.

    What else is in one depends on what ran when it was made: the sockets of nvidia-persistenced, of
    the Fabric Manager and of a user's MPS are in it where they were there.
    """
    devices, drivers = _devices(text), _drivers(text)
    return bool(devices and drivers) and (devices, drivers) == (_devices(other), _drivers(other))


def _devices(text: str) -> set[str]:
    document = read(text)
    if document is None or document.get("kind") != KIND:
        return set()
    devices = document.get("devices") or []
    return {str(device.get("name", "")) for device in devices if isinstance(device, dict)}


def _drivers(text: str) -> set[str]:
    """Versions of the driver's libraries that a container gets."""
    return set(re.findall(r"/libcuda\.so\.(\d+\.[\d.]*\d)", text))


def gpus(text: str) -> set[int]:
    """The numbers of the GPUs that have devices: `3` is a GPU, `3:1` a MIG instance of it.

    A GPU's UUID is another name of it, and `all` is all of them.
    """
    numbers = (name.partition(":")[0] for name in _devices(text))
    return {int(number) for number in numbers if number.isdecimal()}
