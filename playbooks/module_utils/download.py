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
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlsplit

_CHUNK = 2**20  # bytes


class NoFile(Exception):
    """One sentence, without its end: why the file is not there, and what to do."""


class Told(Protocol):
    """Told while a download goes on: bytes that are there, and all of them if that is known."""

    def __call__(self, there: int, length: int | None) -> None: ...


def download(url: str, file: BinaryIO, timeout: float, variable: str = "") -> str:
    """Writes what is at the address; its SHA-256. Raises NoFile, and OSError only of the disk.

    `variable` is the one with which a site names its mirror. Proxies are those of the environment;
    certificates are held against the node's own authorities.
    """
    going = _Download(url, file, timeout, variable)
    going.go_on()
    return going.sha256.hexdigest()


def resume(
    url: str,
    part: Path,
    timeout: float,
    told: Told | None = None,
    tries: int = 5,
    pause: float = 2,
) -> str:
    """Brings the file to what is at the address, from where it ends; its SHA-256.

    A connection that breaks off is made again, until `tries` of them in a row brought nothing; the
    pause before each is twice as long as the one before. A server that sends no ranges starts
    again. Raises NoFile, and what came stays in the file for the next time.
    """
    try:
        with part.open("a+b") as file:
            going = _Download(url, file, timeout, told=told)
            going.read_what_is_there()
            moved, failed = False, 0
            while True:
                before = going.there
                try:
                    going.go_on()
                    break
                except NoFile:
                    if going.there > before:
                        moved, failed = True, 0
                    failed += 1
                    if not moved or failed > tries:
                        raise
                time.sleep(min(pause * 2 ** (failed - 1), 60))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise NoFile(f"{part} cannot be written: {disk_problem(error)}") from None
    return going.sha256.hexdigest()


def length(url: str, timeout: float) -> int | None:
    """How many bytes there are at the address, if the server says so. Raises NoFile.

    It asks as for a download, because many servers allow nothing else, and reads the answer's head.
    """
    with _answer(url, timeout) as answer:
        return _length(answer)


class _Download:
    """One file that comes, and how far it is."""

    def __init__(
        self, url: str, file: BinaryIO, timeout: float, variable: str = "", told: Told | None = None
    ) -> None:
        self.url, self.file, self.timeout, self.variable = url, file, timeout, variable
        self.told = told
        self.sha256, self.there = hashlib.sha256(), 0

    def read_what_is_there(self) -> None:
        self.file.seek(0)
        while chunk := self.file.read(_CHUNK):
            self._count(chunk)

    def go_on(self) -> None:
        """Writes what follows what is there."""
        try:
            headers = {"Range": f"bytes={self.there}-"} if self.there else {}
            answer = _answer(self.url, self.timeout, self.variable, headers)
        except _NoMore as all_of_it:
            if all_of_it.length == self.there:
                return
            answer = _answer(self.url, self.timeout, self.variable)
        with answer:
            begins = (answer.headers.get("Content-Range") or "").partition("-")[0]
            if self.there and begins != f"bytes {self.there}":
                self.file.truncate(0)
                self.sha256, self.there = hashlib.sha256(), 0
            self._copy(answer)

    def _copy(self, answer: Any) -> None:
        rest = _length(answer)
        whole = None if rest is None else self.there + rest
        while True:
            try:
                chunk = answer.read(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise NoFile(
                    f"{self.url} broke off after {self.there} bytes: "
                    f"{_network(error, self.timeout)}; run again"
                ) from None
            if not chunk:
                break
            self.file.write(chunk)
            self._count(chunk)
            if self.told:
                self.told(self.there, whole)
        if whole is not None and self.there != whole:
            raise NoFile(
                f"{self.url} broke off after {self.there} of {whole} bytes; run again, or "
                f"{_mirror(self.variable)}"
            )

    def _count(self, chunk: bytes) -> None:
        self.sha256.update(chunk)
        self.there += len(chunk)


class _NoMore(Exception):
    """The file has no bytes where they were asked for; how many it has, if the server says so."""

    def __init__(self, length: int | None) -> None:
        super().__init__()
        self.length = length


def _answer(
    url: str, timeout: float, variable: str = "", headers: Mapping[str, str] | None = None
) -> Any:
    request = urllib.request.Request(url, headers=dict(headers or {}))
    host = urlsplit(url).netloc or urlsplit(url).path
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            total = (error.headers.get("Content-Range") or "").rpartition("/")[2]
            raise _NoMore(int(total) if total.isdigit() else None) from None
        if error.code in (404, 410):
            raise NoFile(
                f"{url} does not exist ({error.code}); see the address and the version in it, "
                f"or {_mirror(variable)}"
            ) from None
        raise NoFile(
            f"{host} refuses {url}: {error.code} {error.reason}; {_mirror(variable)}"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise NoFile(
            f"{url} cannot be reached: {_network(error, timeout)}; {_mirror(variable)}"
        ) from None


def _length(answer: Any) -> int | None:
    said = answer.headers.get("Content-Length") or ""
    return int(said) if said.isdigit() else None


def _mirror(variable: str) -> str:
    return f"set {variable} to a mirror that the nodes reach" if variable else "use a mirror"


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
        raise NoFile(f"{dest} cannot be written: {disk_problem(error)}") from None
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


def disk_problem(error: OSError) -> str:
    """Why a disk does not take a file, in a few words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "its disk is full; make room there and run again"
    return f"{error.strerror or error}"
