"""What scenarios of a whole cluster share: the program that reaches its nodes, and plain output."""

from __future__ import annotations

import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]

# Molecule asks for colours, which would stand between the words that are looked for.
PLAIN = {
    "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
    "ANSIBLE_FORCE_COLOR": "false",
    "ANSIBLE_NOCOLOR": "true",
    "FORCE_COLOR": "",
    "NO_COLOR": "1",
    "PY_COLORS": "0",
}


def virtual_cluster(cluster: str, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["scripts/virtual-cluster", verb, f"--name={cluster}", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
