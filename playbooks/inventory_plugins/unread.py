"""Says in one sentence why an inventory cannot be read, after Ansible's own plugins have given up.

It is the last of `enable_plugins`, so it costs nothing where one of them could read the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin

from playbooks.plugin_utils import variable_files

DOCUMENTATION = """
name: unread
short_description: Names file and line of what no other plugin could read
description: Belongs to C(plugin_utils/variable_files.py).
options: {}
"""


class InventoryModule(BaseInventoryPlugin):
    NAME = "unread"

    def verify_file(self, path: str) -> bool:
        return Path(path).is_file()

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        if sentences := variable_files.inventory_problems(Path(path)):
            lines = ["ERROR: The inventory cannot be read. No host was contacted."]
            lines += [f"  {sentence}" for sentence in sentences]
            self.display.display("\n".join(lines), color="red", stderr=True)
            raise variable_files.Unread(sentences)
        raise AnsibleParserError(f"{path} is none of the kinds of inventories that Ansible reads")
