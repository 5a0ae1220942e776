"""One filesystem that nodes share: what is mounted there, and whether this user can write to it.

Every call here can hang for as long as the file server does: see apart.py.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from cluster.readers import mounts

SIZE = 65536  # bytes that are written and read back
_MIB = 2**20


def look(path: str, home: str | None = None, mountinfo: Path = mounts.MOUNTINFO) -> dict[str, Any]:
    """What is found at the path. Raises OSError where nothing can be.

    point, type, source   of the mount that it lies on; point is "/" where nothing is mounted
    inode                 of the folder: the same on every node that has the same filesystem there
    size_mb, free_mb
    written               the folder that was written to: the path itself where this user may write
                          there, else the user's home below it, or None
    write_error           why nothing could be written or read back
    """
    # First, because an automounter mounts only then; `os.listdir` asks the server, not the cache.
    os.listdir(path)
    seen, space = os.stat(path), os.statvfs(path)
    mount = mounts.covering(os.path.realpath(path), mountinfo)
    folder = writable(path, home)
    return {
        "point": mount.point,
        "type": mount.type,
        "source": mount.source,
        "inode": seen.st_ino,
        "size_mb": space.f_blocks * space.f_frsize // _MIB,
        "free_mb": space.f_bavail * space.f_frsize // _MIB,
        "written": folder,
        "write_error": _write(folder) if folder else "this user may not write there",
    }


def writable(path: str, home: str | None = None) -> str | None:
    """Where this user may write: the path itself, else the home below it; None for nowhere."""
    if os.access(path, os.W_OK | os.X_OK):
        return path
    if home is None:
        with suppress(KeyError):
            home = pwd.getpwuid(os.getuid()).pw_dir
    below = home is not None and PurePosixPath(home).is_relative_to(path)
    return home if below else None


def _write(folder: str) -> str | None:
    """Why what was written there is not what is read back, or None."""
    data = os.urandom(SIZE)
    try:
        descriptor, name = tempfile.mkstemp(prefix="plumbline-", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            with open(name, "rb") as file:
                content = file.read()
        finally:
            os.unlink(name)
    except OSError as error:
        return error.strerror
    return None if content == data else "what is read back is not what was written"
