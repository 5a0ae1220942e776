"""Programs that tests run to their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ANSIBLE_PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
# Modules run with this Python, whatever else the machine has.
PYTHON = f"ansible_python_interpreter={sys.executable}"


def run(*argv: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """What a program said, whatever its exit status.

    options: as for subprocess.run, such as cwd, env, timeout
    """
    command = [str(word) for word in argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def passes(*argv: object, **options: Any) -> str:
    """What a program printed; its failure is the test's."""
    done = run(*argv, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def git(folder: Path, *arguments: str) -> str:
    """What git printed in a folder, as somebody."""
    author = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    return passes("git", "-C", folder, *author, *arguments).strip()


# --- ends without a warning -----------------------------------------------------------------------


def stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on; nothing for a process that has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def everything() -> Iterator[int]:
    """The numbers of all processes of this machine."""
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())


def descendants(pid: int) -> set[int]:
    """A process and all below it; Ansible's workers have left its process group."""
    parents = {p: int(fields[1]) for p in everything() if (fields := stat_fields(p))}
    pids = {pid}
    while more := {p for p, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return pids


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
