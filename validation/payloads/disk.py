"""A file in the task's temporary folder is written and read back, and every byte compared.

The page cache is gone round with O_DIRECT where the filesystem has it: otherwise what is read back
was never on the disk. Each page of the file carries its own number, so that one that landed in
another's place shows, and is random otherwise, so that no drive stores less of it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import operator
import os
import struct
import tempfile
import time
from typing import Any

from cluster.readers import mounts

BLOCK = 4 * 2**20  # bytes of one call
_PAGE = 4096
_STAMP = struct.Struct("<QQ")  # the block's number, the page's place in it
_MIB = 2**20

# Kept in memory: there is no disk that could be measured.
_IN_MEMORY = ("tmpfs", "ramfs")

# How what was read back came past the page cache.
DIRECT, DROPPED, IN_MEMORY = "direct", "dropped", "in memory"


def measure(most_bytes: int, seconds: float, memory_bytes: int) -> dict[str, Any]:
    """Writes until `most_bytes` are there or the seconds are over, then reads that back.

    Never more than a quarter of what is free, nor, where the file is kept in memory, than
    `memory_bytes`.

    folder, type, source   where the file was, and the filesystem there
    free_mb                of the filesystem, before
    cache                  "direct": O_DIRECT went round the page cache. "dropped": the kernel was
                           asked to forget the file, and need not have. "in memory": a tmpfs. None
                           where no file was made
    error                  why the file was not written and read as a whole, or None
    bytes                  written, and read back
    wrong                  bytes that came back as others
    write_s, read_s        seconds of the calls alone; writing ends with fsync
    """
    folder = os.path.realpath(tempfile.gettempdir())
    mount, space = mounts.covering(folder), os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    most = min(most_bytes, free // 4)
    if mount.type in _IN_MEMORY:
        most = min(most, memory_bytes)
    answer: dict[str, Any] = {
        "folder": folder,
        "type": mount.type,
        "source": mount.source,
        "free_mb": free // _MIB,
        "cache": None,
        "error": None,
        "bytes": 0,
        "wrong": 0,
        "write_s": 0.0,
        "read_s": 0.0,
    }
    if space.f_flag & os.ST_RDONLY:
        return {**answer, "error": os.strerror(errno.EROFS)}
    if most < BLOCK:
        return {**answer, "error": f"no room for a file of {BLOCK // _MIB} MiB"}
    try:
        descriptor = _open(folder)
    except OSError as error:
        return {**answer, "error": f"a file cannot be made: {error.strerror}"}
    try:
        answer["cache"] = _cache(descriptor, mount.type)
        return {**answer, **_round_trip(descriptor, most // BLOCK, seconds, answer["cache"])}
    finally:
        os.close(descriptor)


def _open(folder: str) -> int:
    descriptor, name = tempfile.mkstemp(prefix="plumbline-disk-", dir=folder)
    os.unlink(name)  # first, so that nothing can be left behind
    return descriptor


def _cache(descriptor: int, kind: str) -> str:
    if kind in _IN_MEMORY:
        return IN_MEMORY
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
    except OSError:
        return DROPPED
    return DIRECT


def _round_trip(descriptor: int, blocks: int, seconds: float, cache: str) -> dict[str, Any]:
    pattern, buffer = bytearray(os.urandom(BLOCK)), mmap.mmap(-1, BLOCK)  # aligned for O_DIRECT
    written, write_s, read_s, wrong = 0, 0.0, 0.0, 0
    doing = "writing"
    try:
        while written < blocks and (written == 0 or write_s < seconds):
            buffer[:] = _stamped(pattern, written)
            started = time.perf_counter()
            _whole(os.pwritev(descriptor, [buffer], written * BLOCK))
            write_s += time.perf_counter() - started
            written += 1
        started = time.perf_counter()
        os.fsync(descriptor)
        write_s += time.perf_counter() - started
        if cache == DROPPED:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        doing = "reading"
        for block in range(written):
            buffer[:] = bytes(BLOCK)  # so that a read which brings nothing shows
            started = time.perf_counter()
            _whole(os.preadv(descriptor, [buffer], block * BLOCK))
            read_s += time.perf_counter() - started
            wrong += different(buffer[:], bytes(_stamped(pattern, block)))
    except OSError as error:
        return {"error": f"{doing}: {error.strerror}", "bytes": written * BLOCK, "wrong": wrong}
    size = written * BLOCK
    return {"bytes": size, "wrong": wrong, "write_s": write_s, "read_s": read_s}


def _stamped(pattern: bytearray, block: int) -> bytearray:
    for place in range(0, BLOCK, _PAGE):
        _STAMP.pack_into(pattern, place, block, place)
    return pattern


def _whole(count: int) -> None:
    """Raises OSError for a call that moved less than a block."""
    if count != BLOCK:
        raise OSError(errno.EIO, f"{count} bytes of {BLOCK}")


def different(content: bytes, expected: bytes) -> int:
    """How many bytes differ of two texts that are equally long."""
    return 0 if content == expected else sum(map(operator.ne, content, expected))
