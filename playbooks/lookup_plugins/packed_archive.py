"""`lookup('packed_archive', ROLE)`: path, on the control node, of the program that the role packs.

What belongs in it is the role's plugin_utils/archive.py. It lies in Ansible's folder of the run,
which ends with it; all nodes of a run get the same file.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from cluster.files import write_whole
from playbooks.plugin_utils.packed import NotPackable


def build(role: str, folder: Path) -> Path:
    """Whole or not at all: several hosts may ask at once."""
    file = folder / f"{role}.pyz"
    if not file.exists():
        archive = importlib.import_module(f"roles.{role}.plugin_utils.archive")
        write_whole(file, archive.content())
    return file


class LookupModule(LookupBase):
    def run(
        self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[str]:
        del variables, kwargs
        folder = Path(vars(constants)["DEFAULT_LOCAL_TMP"])
        try:
            return [str(build(role, folder)) for role in terms]
        except NotPackable as error:
            raise AnsibleError(f"{', '.join(terms)}: {error}") from error
