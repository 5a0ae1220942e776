"""Documents of Ansible's values: YAML's own writer knows nothing but Python's plain types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

HEADER = "# Managed by Ansible; changes made here are lost.\n"


def plain(value: Any) -> Any:
    """The same value out of dict, list, str, int, float, bool and None.

    Ansible's texts remember where they are from, and its containers are evaluated when read.
    """
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def to_yaml(value: Any) -> str:
    """A file's text, in the order of the value."""
    return HEADER + yaml.safe_dump(plain(value), sort_keys=False, width=100, allow_unicode=True)
