"""Looks for secrets where none may be: files that everybody can read, the journal, process lists.

This file is also the program that a node runs, as root, with the standard library alone. The
secrets come through standard input, as base64 in JSON: an argument would be in the process list.
What is found is told by the secret's name and the place, never by its value.

    python3 leaks.py files /etc /var     files below folders that everybody can read
    python3 leaks.py logs /var/log       all files below folders, whoever can read them
    python3 leaks.py journal             what `journalctl` has
    python3 leaks.py processes FILE      arguments of processes, until FILE is there
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

BLOCK = 1 << 20
SHORTEST = 12  # bytes of a needle: a shorter one is found everywhere
# Where programs and people write. /opt and /usr have what packages bring, gigabytes of it.
FOLDERS = ("/etc", "/home", "/root", "/run", "/srv", "/tmp", "/var", "/dev/shm")
# Whole systems of containers.
PASSED_OVER = ("/var/lib/containers",)

Needles = Mapping[str, list[bytes]]  # by the secret's name, all forms that it may have


# --- what is looked for ---------------------------------------------------------------------------


def needles(secrets: Mapping[str, bytes]) -> dict[str, list[bytes]]:
    """By name, the forms in which a secret may lie about: itself, in base64, in hexadecimal."""
    return {name: list(_forms(value)) for name, value in secrets.items()}


def _forms(value: bytes) -> Iterator[bytes]:
    if b"PRIVATE KEY-----" in value:
        # The certificate beside the key is public. A line of the key itself is enough to know it.
        body = value.partition(b"PRIVATE KEY-----")[2].splitlines()
        yield max(body, key=len)
        return
    plain = value.strip(b"\n")
    some = plain[: 3 * SHORTEST]  # of a long key a part shows
    forms = [
        some,
        plain.hex().encode()[: 4 * SHORTEST],
        plain.hex().upper().encode()[: 4 * SHORTEST],
    ]
    for shift in range(3):  # as it stands in the base64 of a longer text, such as user:password
        coded = base64.b64encode(bytes(shift) + some)
        forms.append(coded[-(-shift * 8 // 6) + (shift > 0) : len(coded) - 4])
    yield from (form for form in forms if len(form) >= SHORTEST)


def found(data: bytes, wanted: Needles) -> list[str]:
    """The names of the secrets in some bytes."""
    return [name for name, forms in wanted.items() if any(form in data for form in forms)]


def in_stream(blocks: Iterable[bytes], wanted: Needles) -> list[str]:
    """The same for more than fits the memory: a needle may lie across two blocks."""
    overlap = max((len(form) for forms in wanted.values() for form in forms), default=1) - 1
    seen: dict[str, None] = {}
    tail = b""
    for block in blocks:
        data = tail + block
        seen.update(dict.fromkeys(found(data, wanted)))
        tail = data[-overlap:] if overlap else b""
    return list(seen)


def _blocks(file: object) -> Iterator[bytes]:
    read = file.read  # type: ignore[attr-defined]
    while block := read(BLOCK):
        yield block


# --- where ----------------------------------------------------------------------------------------


def in_files(
    folders: Iterable[str | Path], wanted: Needles, *, everybody: bool = True
) -> Iterator[tuple[str, str]]:
    """(secret, file) below folders; with `everybody` only of what any account can read."""
    for folder in folders:
        yield from _below(str(folder), wanted, everybody)


def _below(folder: str, wanted: Needles, everybody: bool) -> Iterator[tuple[str, str]]:
    if folder in PASSED_OVER:
        return
    try:
        if everybody and not os.stat(folder).st_mode & stat.S_IXOTH:
            return  # what lies in it is open to nobody else
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, wanted, everybody)
            elif entry.is_file(follow_symlinks=False) and (
                not everybody or entry.stat(follow_symlinks=False).st_mode & stat.S_IROTH
            ):
                with open(entry.path, "rb") as file:
                    for name in in_stream(_blocks(file), wanted):
                        yield name, entry.path


def in_journal(wanted: Needles) -> Iterator[tuple[str, str]]:
    command = ("journalctl", "--no-pager", "--all", "--output=export")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as journal:
        for name in in_stream(_blocks(journal.stdout), wanted):
            yield name, "the journal"


def in_processes(wanted: Needles, proc: Path = Path("/proc")) -> Iterator[tuple[str, str]]:
    """Arguments, which everybody sees, of the processes of this moment."""
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                arguments = (folder / "cmdline").read_bytes()
                for name in found(arguments, wanted):
                    program = arguments.split(b"\0")[0].decode(errors="replace")
                    # A program's name is told, unless the secret stands there.
                    yield name, f"process {Path(program).name if len(program) < 40 else '?'}"


def watched(wanted: Needles, end: Path, seconds: float = 3600) -> set[tuple[str, str]]:
    """What process lists show until a file is there, looked at many times a second."""
    seen: set[tuple[str, str]] = set()
    last = time.monotonic() + seconds
    while not end.exists() and time.monotonic() < last:
        seen.update(in_processes(wanted))
        time.sleep(0.03)
    return seen


def core_dumps(folders: Iterable[str | Path]) -> Iterator[str]:
    """Core dumps that others than their owner can read: daemons' have the secrets in them."""
    for folder in folders:
        for path, _, names in os.walk(folder):
            for name in names:
                if re.fullmatch(r"core([._-].*)?|.*\.core(\.\w+)?", name):
                    file = os.path.join(path, name)
                    with contextlib.suppress(OSError):
                        status = os.lstat(file)
                        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
                            with open(file, "rb") as dump:
                                if dump.read(4) == b"\x7fELF":
                                    yield file


def coded(wanted: Needles) -> str:
    """The needles, for standard input of the program."""
    return json.dumps(
        {
            name: [base64.b64encode(form).decode() for form in forms]
            for name, forms in wanted.items()
        }
    )


def decoded(text: str) -> dict[str, list[bytes]]:
    read = json.loads(text)
    return {name: [base64.b64decode(form) for form in forms] for name, forms in read.items()}


def main(arguments: list[str]) -> None:
    verb, *rest = arguments
    wanted = decoded(sys.stdin.readline())
    if verb == "files":
        places = [*in_files(rest or FOLDERS, wanted)]
        places += [("a daemon's memory", dump) for dump in core_dumps(rest or FOLDERS)]
    elif verb == "logs":
        places = [*in_files(rest, wanted, everybody=False)]
    elif verb == "journal":
        places = [*in_journal(wanted)]
    else:
        print("watching", flush=True)
        places = sorted(watched(wanted, Path(rest[0])))
    print(json.dumps(places))


if __name__ == "__main__":
    main(sys.argv[1:])
