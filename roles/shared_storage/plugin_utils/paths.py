"""Paths of exports and mounts, and the names that systemd has for them."""

from __future__ import annotations

import posixpath
import re
import string

# What is no place for a filesystem of users: the system itself, or the kernel's.
SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys")
WHOLE = (*SYSTEM, "/", "/usr", "/var", "/var/lib", "/var/log", "/root", "/tmp")
_PLAIN = re.compile(r"/[\w./@:+-]*", re.ASCII)
_KEPT = frozenset(string.ascii_letters + string.digits + ":_.")


def inside(path: str, folder: str) -> bool:
    """Whether a path is below a folder, and not the folder itself."""
    return path.startswith(f"{folder.rstrip('/')}/") and path != folder


def problem(path: str) -> str:
    """Why nothing is exported or mounted at a path; empty where it can be."""
    if not _PLAIN.fullmatch(path):
        return "is no absolute path of letters, digits and ./@:+_-"
    if posixpath.normpath(path) != path:
        return f"is written otherwise than {posixpath.normpath(path)}"
    if path in WHOLE or any(inside(path, folder) for folder in SYSTEM):
        return "belongs to the system"
    return ""


def mount_unit(path: str) -> str:
    """Name of the mount unit of a path, as systemd-escape(1) makes it."""
    text = path.strip("/").replace("-", "\\x2d").replace("/", "-")
    head = "\\x2e" if text.startswith(".") else text[:1]
    escaped = "".join(
        letter if letter in _KEPT | {"-", "\\"} else f"\\x{letter.encode().hex()}"
        for letter in text[1:]
    )
    return f"{head}{escaped}.mount"
