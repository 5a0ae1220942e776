"""Secrets that the control node keeps, a file each: made once, mode 0600, or encrypted by a vault.

The folder is the site's `cluster_secrets`. Errors are one sentence each, with the file's name.
"""

from __future__ import annotations

import os
import secrets
import string
from collections.abc import Callable
from pathlib import Path

PRIVATE = {0o400, 0o600}
LENGTH = 32  # characters of a password made at random: 190 bits
LEAST = 16  # of one that a site wrote

Decrypted = Callable[[Path], str]  # the text of a file, out of the vault where it lies in one


class NotKept(Exception):
    """One sentence without its end: why a secret cannot be used."""


def read(path: Path, decrypted: Decrypted) -> str:
    """The text of a secret, "" where there is no such file. Raises NotKept."""
    if not path.is_absolute():
        raise NotKept(f"{path} is another file in each folder; give its absolute path")
    if not path.exists():
        return ""
    mode = path.stat().st_mode & 0o777
    if mode not in PRIVATE:
        raise NotKept(f"{path} has mode {mode:04o}, and others can read it; chmod 0600 {path}")
    return decrypted(path)


def keep(path: Path, text: str) -> None:
    """Writes a secret that is not there yet, whole or not at all.

    Raises NotKept where the folder cannot be written, or somebody else was faster.
    """
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        try:
            os.link(new, path)  # unlike a rename, it replaces nothing
        finally:
            new.unlink()
    except OSError as error:
        raise NotKept(f"{path} cannot be written: {error.strerror}") from None


def new_password() -> str:
    """Letters and digits: they need no quotes anywhere."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(LENGTH))


def password(text: str, path: Path) -> str:
    """The password in a file's text. Raises NotKept for one that can be guessed."""
    secret = text.strip("\n")
    if len(secret) < LEAST:
        raise NotKept(
            f"the password in {path} has {len(secret)} characters; give it {LEAST}, or move the "
            "file away to have one made at random"
        )
    if not secret.isprintable() or not secret.isascii() or secret != secret.strip():
        raise NotKept(f"the password in {path} must be one line of printable ASCII characters")
    return secret
