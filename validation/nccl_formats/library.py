"""The texts in an NCCL library: what its printf formats are made of.

A library is an ELF file (libnccl.so.2), or a wheel that holds one. Only the section of constants is
read; the device code, which is most of the file, is not.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO

from cluster.errors import DataError

_SECTION = ".rodata"
_LEAST = 2  # characters of a text
_TEXT = re.compile(rb"[\t\n\r\x1b\x20-\x7e\xc2-\xf4\x80-\xbf]+\Z")
# A text may follow binary data without a NUL between.
_TAIL = re.compile(rb"[\t\n\x20-\x7e]{6,}\Z")
_NAME = "libnccl.so.2"
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")


def texts(path: Path) -> frozenset[str]:
    """The texts of a library or wheel. Raises DataError for anything else."""
    try:
        with path.open("rb") as file:
            if zipfile.is_zipfile(file):
                return frozenset(_texts(_constants(_of_wheel(file, path), path)))
            file.seek(0)
            return frozenset(_texts(_constants(file, path)))
    except OSError as error:
        raise DataError(str(path), [f"cannot be read: {error.strerror or error}"]) from error
    except (struct.error, ValueError, IndexError, zipfile.BadZipFile) as error:
        raise DataError(str(path), ["is no library of NCCL, and no wheel with one"]) from error


def release(found: frozenset[str]) -> str | None:
    """The release that a library calls itself, where it does."""
    versions = {match[1] for text in found if (match := _VERSION.search(text))}
    return versions.pop() if len(versions) == 1 else None


def _of_wheel(file: IO[bytes], path: Path) -> IO[bytes]:
    with zipfile.ZipFile(file) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(f"/{_NAME}")]
        if len(names) != 1:
            raise DataError(str(path), [f"has {len(names)} files {_NAME}, one expected"])
        return BytesIO(wheel.read(names[0]))


def _constants(file: IO[bytes], path: Path) -> bytes:
    """The section .rodata of an ELF file for 64-bit little-endian machines."""
    head = file.read(64)
    if head[:6] != b"\x7fELF\x02\x01":
        raise DataError(str(path), ["is no library of NCCL: not ELF for a 64-bit machine"])
    (table,) = struct.unpack_from("<Q", head, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", head, 0x3A)
    file.seek(table)
    rows = [struct.unpack_from("<IIQQQQIIQQ", file.read(size)) for _ in range(count)]
    _, _, _, _, names_offset, names_size, *_ = rows[names_at]
    file.seek(names_offset)
    names = file.read(names_size)
    for row in rows:
        name = names[row[0] : names.index(b"\0", row[0])].decode("ascii", "replace")
        if name == _SECTION:
            file.seek(row[4])
            return file.read(row[5])
    raise DataError(str(path), [f"has no section {_SECTION}"])


def _texts(constants: bytes) -> Iterator[str]:
    for part in constants.split(b"\0"):
        if len(part) >= _LEAST and _TEXT.match(part):
            yield part.decode("utf-8", "replace")
        elif match := _TAIL.search(part):
            yield match[0].decode()
