"""Where APT reads its sources on a node: its own settings may name another folder than usual.

Modules find it as ansible.module_utils.apt_sources.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

USUAL = Path("/etc/apt/sources.list.d")


def sources_folder() -> Path:
    """The folder that APT reads sources from; the usual one where APT does not say."""
    done = subprocess.run(
        ["apt-config", "shell", "folder", "Dir::Etc::sourceparts/d"],
        capture_output=True,
        text=True,
        check=False,
    )
    for word in shlex.split(done.stdout):
        name, _, value = word.partition("=")
        if name == "folder" and value.startswith("/"):
            return Path(value)
    return USUAL
