"""Writes down each plugin that is loaded from its source, and whether a forked child loaded it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import PluginLoader

DOCUMENTATION = """
name: count_loads
type: aggregate
short_description: Writes down which plugins are loaded in which process
description: Appends a line C(parent PATH) or C(child PATH) to the file that $COUNT_LOADS names.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "count_loads"
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self) -> None:
        super().__init__()
        parent, record = os.getpid(), Path(os.environ["COUNT_LOADS"])
        load = PluginLoader._load_module_source

        def noted(self: Any, *, python_module_name: str, path: str) -> Any:
            process = "parent" if os.getpid() == parent else "child"
            with record.open("a", encoding="utf-8") as file:
                file.write(f"{process} {path}\n")
            return load(self, python_module_name=python_module_name, path=path)

        anyones: Any = PluginLoader
        anyones._load_module_source = noted
