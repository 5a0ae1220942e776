#!/usr/bin/python
"""Brings one file of an upstream release to a node, whole and as it was pinned, or not at all.

What lies there already and has the right hash is neither asked for nor touched. A download goes to
a file beside its destination and takes its name only once every byte has been counted and hashed,
so that whatever goes wrong, what was there before still is.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import socket
import ssl
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: release_file
short_description: Bring one file of an upstream release to a node
description:
  - Downloads when the destination is missing or has another SHA-256, and replaces it at once.
  - Proxies are those of the environment; certificates are held against the node's own authorities.
options:
  url:
    description: Where it is; C(https:), C(http:) or C(file:).
    type: str
    required: true
  sha256:
    description: What its SHA-256 must be, 64 hexadecimal digits.
    type: str
    required: true
  dest:
    description: Path of the file; its folder must be there.
    type: path
    required: true
  mode:
    description: Its permissions, as four octal digits.
    type: str
    default: "0644"
  timeout:
    description: Seconds of silence after which the download is given up.
    type: int
    default: 60
  variable:
    description: The variable with which a site names its mirror; errors say it.
    type: str
    default: ""
author: The Plumbline authors
"""

_CHUNK = 2**20  # bytes


class NoFile(Exception):
    """One sentence: why the file is not there, and what to do."""


def digest(path: Path) -> str:
    """SHA-256 of a file, or "" where there is none."""
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
    except FileNotFoundError:
        return ""
    return found.hexdigest()


def fetch(url: str, sha256: str, dest: Path, mode: int, timeout: float, variable: str = "") -> None:
    """Replaces `dest` by what is at `url`. Raises NoFile, and then nothing has changed."""
    mirror = f"set {variable} to a mirror that the nodes reach" if variable else "use a mirror"
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{dest.name}.", dir=dest.parent)
    except OSError as error:
        raise NoFile(f"{dest.parent} takes no file: {_disk(error)}") from None
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            found = _download(url, file, timeout, mirror)
            if found != sha256.lower():
                raise NoFile(
                    f"{url} has the SHA-256 {found}, and {sha256.lower()} is pinned; it is not the "
                    "file that was meant, or the pin is of another version"
                )
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        part.replace(dest)
    except OSError as error:
        raise NoFile(f"{dest} cannot be written: {_disk(error)}") from None
    finally:
        part.unlink(missing_ok=True)


def _download(url: str, file: BinaryIO, timeout: float, mirror: str) -> str:
    """Writes what is at the address; its SHA-256. Raises OSError only of the disk."""
    host = urlsplit(url).netloc or urlsplit(url).path
    found, received = hashlib.sha256(), 0
    try:
        answer = urllib.request.urlopen(url, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise NoFile(
                f"{url} does not exist ({error.code}); see the version, or {mirror}"
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
            found.update(chunk)
            received += len(chunk)
    if length is not None and received != int(length):
        raise NoFile(f"{url} broke off after {received} of {length} bytes; run again, or {mirror}")
    return found.hexdigest()


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


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "sha256": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "mode": {"type": "str", "default": "0644"},
            "timeout": {"type": "int", "default": 60},
            "variable": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given = module.params
    dest, mode = Path(given["dest"]), int(given["mode"], 8)
    if not re.fullmatch(r"[0-9a-fA-F]{64}", given["sha256"]):
        module.fail_json(
            msg=f"the SHA-256 for {given['url']} is {given['sha256']!r}; give its 64 hex digits."
        )
    there = digest(dest) == given["sha256"].lower()
    right = there and dest.stat().st_mode & 0o7777 == mode
    if not right and not module.check_mode:
        try:
            if there:
                dest.chmod(mode)
            else:
                fetch(
                    given["url"], given["sha256"], dest, mode, given["timeout"], given["variable"]
                )
        except NoFile as problem:
            module.fail_json(msg=f"{problem}.")
    module.exit_json(changed=not right, dest=str(dest))


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
