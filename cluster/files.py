"""Files that are replaced whole: who reads one meets the old content or the new, never a half."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def write_whole(
    path: Path,
    content: str | bytes | Iterable[bytes],
    mode: int | None = None,
    sync: bool = False,
) -> None:
    """Raises OSError, or what an iterable raises; the file of before is still there then.

    content  an iterable gives the pieces of a file that nobody holds at once
    mode  whatever the umask is; without one the umask decides
    sync  whether the content is on the disk before the file is replaced
    """
    # A name that nobody reads, hidden from a shell's *; each process has its own.
    new = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        with open(os.open(new, flags, 0o666 if mode is None else 0o600), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            whole = content.encode() if isinstance(content, str) else content
            file.writelines((whole,) if isinstance(whole, bytes) else whole)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
