"""Secrets of the control node in ansible-vault: opened, sealed, and sealed under another password.

A file is replaced whole or not at all, and keeps its time, which says how old the value is.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.parsing.vault import (
    VaultLib,
    match_encrypt_vault_id_secret,
    parse_vaulttext_envelope,
)

from playbooks.plugin_utils import kept, vaulted

NEW = ".new"  # ends the name of a file that is being written

# As Ansible's loader has them: an identity, and what it opens with.
Passwords = Sequence[tuple[str, Any]]


def is_sealed(data: bytes) -> bool:
    return data.startswith(vaulted.MARK)


def opened(data: bytes, path: Path, passwords: Passwords) -> bytes:
    """What lies in a file, out of the vault if it is in one. Raises NotKept."""
    if not is_sealed(data):
        return data
    try:
        return bytes(VaultLib(list(passwords)).decrypt(data))
    except AnsibleError:
        raise kept.NotKept(
            f"none of the vault passwords of this run opens {path}; give the one that it was "
            "encrypted with (--vault-password-file FILE)"
        ) from None


def sealed(value: bytes, passwords: Passwords, identity: str = "") -> bytes:
    """A value in the vault, under the password of this identity or the first. Raises NotKept."""
    if not passwords:
        raise kept.NotKept(
            "there is no vault password to encrypt with; add --vault-password-file FILE, or set "
            "ANSIBLE_VAULT_PASSWORD_FILE"
        )
    known = [name for name, _ in passwords]
    chosen = identity if identity in known else known[0]
    name, password = match_encrypt_vault_id_secret(list(passwords), encrypt_vault_id=chosen)
    label = None if name == "default" else name
    return bytes(VaultLib(list(passwords)).encrypt(value, secret=password, vault_id=label))


def like(data: bytes, value: bytes, path: Path, passwords: Passwords) -> bytes:
    """Another value, kept as this file's is: plain, or in the vault under the same identity."""
    if not is_sealed(data):
        return value
    opened(data, path, passwords)  # who cannot read the vault must not write into it
    return sealed(value, passwords, parse_vaulttext_envelope(data)[3])


def put(path: Path, data: bytes, like_file: Path | None = None) -> None:
    """Writes a file in one step, mode 0600, with the time of another one. Raises NotKept."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}{NEW}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            if like_file is not None:
                times = like_file.stat()
                os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
            new.replace(path)
        except OSError:
            new.unlink()
            raise
    except OSError as error:
        raise kept.NotKept(f"{path} cannot be written: {error.strerror}") from None
