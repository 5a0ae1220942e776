"""Stand-ins for NVIDIA's repository, with its names and what its packages ask of each other."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.standins.mirror import Deb, Mirror

# Like Ubuntu's: static, ends when nothing needs it, and leaves persistence mode off.
UNIT = """[Unit]
Description=Stand-in for the NVIDIA Persistence Daemon
StopWhenUnneeded=true
[Service]
ExecStart=/bin/sh -c 'exec sleep infinity' nvidia-persistenced --no-persistence-mode
"""
VERSIONS = ("580.95.05-1", "580.105.08-1", "590.44.01-1")


def driver(version: str) -> list[Deb]:
    """On Debian a driver accepts any newer one of what it depends on."""
    return [
        Deb("nvidia-driver-cuda", version, depends=("nvidia-modprobe (>= 580.65.06)",)),
        Deb("nvidia-modprobe", version),
        Deb(
            "nvidia-persistenced",
            version,
            files={"/usr/lib/systemd/system/nvidia-persistenced.service": UNIT},
        ),
    ]


if __name__ == "__main__":
    packages = [package for version in VERSIONS for package in driver(version)]
    Mirror(Path(sys.argv[1])).apt("cuda", packages)
