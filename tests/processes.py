"""Programs that tests run to their end."""

from __future__ import annotations

import subprocess
import sys
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
