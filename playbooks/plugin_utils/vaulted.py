"""Files of the control node that may lie in ansible-vault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = b"$ANSIBLE_VAULT"  # what an encrypted file begins with


def reader(loader: Any) -> Callable[[Path], str]:
    """A function that reads a text with Ansible's own loader, which has the vault's passwords.

    It raises AnsibleError where there is no password for a file.
    """

    def read(path: Path) -> str:
        plain = loader.get_real_file(str(path), decrypt=True)
        try:
            return Path(plain).read_text(encoding="utf-8")
        finally:
            loader.cleanup_tmp_file(plain)

    return read
