"""Secrets that the control node keeps, a file each: made once, mode 0600, or encrypted by a vault.

The folder is the site's `cluster_secrets`. Errors are one sentence each, with the file's name.
"""

from __future__ import annotations

import os
import secrets
import shutil
import string
import subprocess
from collections.abc import Callable
from pathlib import Path

from playbooks.plugin_utils import vaulted

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


def keep_out_of_git(folder: Path) -> None:
    """Writes an ignore file into the folder of secrets; one that is there stays. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ignored = folder / ".gitignore"
    if not ignored.exists():
        ignored.write_text("# Secrets of a cluster: none of them belongs into git.\n*\n")


def tracked_by_git(folder: Path) -> list[Path]:
    """Files of the folder that git tracks as plain text; none where there is no git."""
    git = shutil.which("git")
    if git is None or not folder.is_dir():
        return []
    command = (git, "-C", str(folder), "ls-files", "-z", "--", ".")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    paths = [folder / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.name != ".gitignore" and _is_plain(path)]


def _is_plain(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(vaulted.MARK)) != vaulted.MARK
    except OSError:
        return True  # gone from here, but not from git


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
