"""What roles share that publish files for users: where, and how pages about them look.

Modules find it as ansible.module_utils.published, and it runs on nodes with nothing but Python.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import OWN_FILE, Access, differs, make_folder, write

PAGE = "README.md"
# Beside what is published; hidden, so it is the name of nothing.
WORK = ".incoming"
HEAD = "<!-- Managed by Ansible; changes made here are lost. -->"
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def amount(number: float) -> str:
    """Bytes in words."""
    power = min((len(str(int(number))) - 1) // 3, len(_UNITS) - 1)
    return f"{number / 1000**power:.{1 if power else 0}f} {_UNITS[power]}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def bring_pages(
    root: Path, files: Mapping[str, str], stale: Iterable[str], check_mode: bool
) -> list[str]:
    """Writes the files that differ and removes the stale ones; their paths below the root."""
    different = [name for name, text in files.items() if differs(root / name, text, OWN_FILE)]
    stale = list(stale)
    if not check_mode:
        for name in different:
            write(root / name, files[name], OWN_FILE)
        for name in stale:
            (root / name).unlink(missing_ok=True)
            with suppress(OSError):  # others are in it
                (root / name).parent.rmdir()
    return sorted(different + stale)


@contextmanager
def held(root: Path, role: str) -> Iterator[Path]:
    """The folder for unfinished work, this run's alone; the lock ends with the process."""
    work = root / WORK
    make_folder(root, Access(0o755, os.geteuid(), os.getegid()))
    make_folder(work, Access(0o700, os.geteuid(), os.getegid()))
    lock = os.open(work / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield work
    except BlockingIOError:
        raise Refused(
            f"another run of the role {role} works in {root} (see {work}); wait for it"
        ) from None
    finally:
        os.close(lock)


def is_ours(page: Path) -> bool:
    """Whether a page was written by a role, and may be removed."""
    first = ""
    with suppress(OSError), page.open(encoding="utf-8", errors="replace") as file:
        first = file.readline().rstrip("\n")
    return first == HEAD


def mount_of(root: Path, mounts: Iterable[str]) -> str:
    """The filesystem that a folder is on; "" if it is on none of them."""
    return max((path for path in mounts if root.is_relative_to(path)), key=len, default="")


def check_root(root: Path, mounts: Iterable[str], role: str) -> None:
    """Refuses a folder that is not on its filesystem, or that others may write to."""
    mount = mount_of(root, mounts)
    if mount and not os.path.ismount(mount):
        raise Refused(
            f"{mount} is not mounted on this host, and {root} belongs on it; mount it "
            f"(playbooks/storage.yml), or correct {role}_host or {role}_root"
        )
    with suppress(FileNotFoundError):
        status = root.lstat()
        others = stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or others:
            raise Refused(
                f"{root} is no folder that user {os.geteuid()} alone writes to "
                f"({stat.filemode(status.st_mode)}, user {status.st_uid}); give {role}_root the "
                "path of one that is, or of one that is missing"
            )
