"""Brings bytes from an address to a file, whole or not at all, and says in one sentence why not.

Modules find it as ansible.module_utils.download, and it runs on nodes with nothing but Python.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

_CHUNK = 2**20  # bytes


class NoFile(Exception):
    """One sentence, without its end: why the file is not there, and what to do."""


def download(url: str, file: BinaryIO, timeout: float, variable: str = "") -> str:
    """Writes what is at the address; its SHA-256. Raises NoFile, and OSError only of the disk.

    `variable` is the one with which a site names its mirror. Proxies are those of the environment;
    certificates are held against the node's own authorities.
    """
    mirror = f"set {variable} to a mirror that the nodes reach" if variable else "use a mirror"
    host = urlsplit(url).netloc or urlsplit(url).path
    sha256, received = hashlib.sha256(), 0
    try:
        answer = urllib.request.urlopen(url, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise NoFile(
                f"{url} does not exist ({error.code}); see the address and the version in it, "
                f"or {mirror}"
            ) from None
        raise NoFile(f"{host} refuses {url}: {error.code} {error.reason}; {mirror}") from None
    except (OSError, http.client.HTTPException) as error:
        raise NoFile(f"{url} cannot be reached: {_network(error, timeout)}; {mirror}") from None
    with answer:
        length = answer.headers.get("Content-Length")
        while True:
            try:
                chunk = answer.read(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise NoFile(
                    f"{url} broke off after {received} bytes: {_network(error, timeout)}; run again"
                ) from None
            if not chunk:
                break
            file.write(chunk)
            sha256.update(chunk)
            received += len(chunk)
    if length is not None and received != int(length):
        raise NoFile(f"{url} broke off after {received} of {length} bytes; run again, or {mirror}")
    return sha256.hexdigest()


def other_hash(actual: str, pinned: str) -> str:
    """What is wrong with a SHA-256; "" if it is the one that is pinned."""
    pinned = pinned.lower()
    return "" if actual == pinned else f"has the SHA-256 {actual}, and {pinned} is pinned"


@contextmanager
def replacing(dest: Path, mode: int = 0o644) -> Iterator[BinaryIO]:
    """A file that takes the name `dest` at once, when the body has written it without an error.

    Raises NoFile where the disk does not take it; what was there before still is.
    """
    part = dest.with_name(f"{dest.name}.new")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        part.replace(dest)
    except OSError as error:
        raise NoFile(f"{dest} cannot be written: {_disk(error)}") from None
    finally:
        with suppress(OSError):
            part.unlink()


def _network(error: Exception, timeout: float) -> str:
    """Why there was no answer, in a few words."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return f"no answer for {timeout:g} s"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message})"
    if isinstance(reason, socket.gaierror):
        return "its name is not known"
    if isinstance(reason, http.client.IncompleteRead):
        return "the connection was closed"
    return (getattr(reason, "strerror", None) or str(reason) or type(reason).__name__).rstrip(".")


def _disk(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "its disk is full; make room there and run again"
    return f"{error.strerror or error}"
