"""Kernels of notebooks, out of the modules that a site declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def kernels_of_modules(modulefiles: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A kernel for each module that is a virtual environment of Python.

    >>> kernels_of_modules([{"name": "pytorch", "version": "2.13.0", "kind": "venv",
    ...                      "description": "PyTorch"}])[0]["modules"]
    ['pytorch/2.13.0']
    """
    return [
        {
            "name": re.sub(r"[^a-z0-9_.-]", "-", f"{each['name']}-{each['version']}".lower()),
            "description": f"{each['description']} ({each['name']}/{each['version']})",
            "modules": [f"{each['name']}/{each['version']}"],
        }
        for each in modulefiles
        if each.get("kind") == "venv"
    ]


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"kernels_of_modules": kernels_of_modules}
