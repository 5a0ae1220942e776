"""CDI specifications: whether two say the same, and which GPUs one has.

https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

from __future__ import annotations

import json
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


def same(one: str, other: str) -> bool:
    """Whether two texts are specifications that say the same, in whatever order."""
    first, second = read(one), read(other)
    return first is not None and second is not None and _ordered(first) == _ordered(second)


def _ordered(value: Any) -> Any:
    """A value whose lists are sorted: devices, mounts and hooks are found one by one."""
    if isinstance(value, dict):
        return {key: _ordered(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted((_ordered(inner) for inner in value), key=_text)
    return value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def gpus(text: str) -> set[int]:
    """The numbers of the GPUs that have devices: `3` is a GPU, `3:1` a MIG instance of it.

    A GPU's UUID is another name of it, and `all` is all of them.
    """
    document = read(text)
    if document is None or document.get("kind") != KIND:
        return set()
    devices = document.get("devices")
    named = [device for device in devices if isinstance(device, dict)] if devices else []
    numbers = (str(device.get("name", "")).partition(":")[0] for device in named)
    return {int(number) for number in numbers if number.isdecimal()}
