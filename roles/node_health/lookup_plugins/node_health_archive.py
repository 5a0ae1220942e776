"""`lookup('node_health_archive')`: path of the packed program on the control node.

It lies in Ansible's folder of the run, which ends with it; all nodes of a run get the same file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

# Ansible loads a plugin by its path; what plugins share is a package from the checkout's root.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from playbooks.plugin_utils.packed import NotPackable
from roles.node_health.plugin_utils import archive

NAME = "node-health.pyz"


def made(folder: Path) -> Path:
    """Whole or not at all: several hosts may ask at once."""
    file = folder / NAME
    if not file.exists():
        new = folder / f".{NAME}.{os.getpid()}"
        new.write_bytes(archive.content())
        os.replace(new, file)
    return file


class LookupModule(LookupBase):
    def run(
        self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[str]:
        del terms, variables, kwargs
        try:
            return [str(made(Path(vars(constants)["DEFAULT_LOCAL_TMP"])))]
        except NotPackable as error:
            raise AnsibleError(f"node_health: {error}") from error
