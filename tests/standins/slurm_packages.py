"""Stand-ins for SchedMD's packages of Slurm: what they are called, need and exclude.

Nothing in them is Slurm: each program prints its version.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from tests.standins.mirror import Deb, build

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "all")
PROGRAMS = {
    "client": ("usr/bin/sinfo", "usr/bin/scontrol"),
    "slurmctld": ("usr/sbin/slurmctld",),
    "slurmd": ("usr/sbin/slurmd", "usr/sbin/slurmstepd"),
    "slurmdbd": ("usr/sbin/slurmdbd",),
    "slurmrestd": ("usr/sbin/slurmrestd",),
    "dev": (),
    "libpam-slurm-adopt": (),
}
CONFLICTS = {
    "": ("slurm-wlm", "slurm-wlm-basic-plugins", "slurm-wlm-plugins"),
    "client": ("slurm-client",),
    "slurmctld": ("slurmctld",),
    "slurmd": ("slurmd",),
    "slurmdbd": ("slurmdbd",),
}


def packages(version: str) -> list[Deb]:
    """All packages of a version such as 24.11.5."""
    full = f"{version}-1"
    program = f"#!/bin/sh\necho slurm {version}\n"
    base = Deb("slurm-smd", full, ARCHITECTURE, conflicts=CONFLICTS[""])
    return [
        base,
        *(
            Deb(
                f"slurm-smd-{part}",
                full,
                ARCHITECTURE,
                depends=(f"slurm-smd (= {full})",),
                conflicts=CONFLICTS.get(part, ()),
                files=dict.fromkeys(programs, program),
            )
            for part, programs in PROGRAMS.items()
        ),
    ]


def fill(folder: Path, *versions: str) -> None:
    """A folder for each version, with its packages side by side."""
    for version in versions:
        for package in packages(version):
            build(package, folder / version)


if __name__ == "__main__":
    fill(Path(sys.argv[1]), *sys.argv[2:])
