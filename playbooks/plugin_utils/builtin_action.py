"""Ansible's own actions, for those of ours that stand in their place.

A project's action of the same name takes the place of `ansible.plugins.action.NAME` among Python's
modules, so importing that name would give the project's own, half loaded.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import ansible.plugins.action


def builtin_action(name: str) -> Any:
    """The class of Ansible's action of this name."""
    return builtin_module(name).ActionModule


def builtin_module(name: str) -> Any:
    """The Python module that has it."""
    own_name = f"plumbline_builtin_action_{name}"
    if own_name not in sys.modules:
        path = Path(ansible.plugins.action.__file__).parent / f"{name}.py"
        spec = importlib.util.spec_from_file_location(own_name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"this Ansible has no action {name} in {path}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[own_name] = module
        spec.loader.exec_module(module)
    return sys.modules[own_name]
