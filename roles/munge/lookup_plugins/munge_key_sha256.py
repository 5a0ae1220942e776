"""`lookup('munge_key_sha256', FILE)`: the SHA-256 of a key on the control node, as hexadecimal.

A key is binary, which Ansible's own lookups of files refuse to be given, and may be encrypted by
ansible-vault: then it is the hash of what the nodes get. Empty when there is no such file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.plugins.lookup import LookupBase


def digest(key: Path, loader: DataLoader) -> str:
    if not key.exists():
        return ""
    plain = loader.get_real_file(str(key), decrypt=True)
    try:
        return hashlib.sha256(Path(plain).read_bytes()).hexdigest()
    finally:
        loader.cleanup_tmp_file(plain)


class LookupModule(LookupBase):
    def run(
        self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[str]:
        del variables, kwargs
        return [digest(Path(term), self._loader or DataLoader()) for term in terms]
