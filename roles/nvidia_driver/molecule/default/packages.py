"""Stand-ins for NVIDIA's repository, with its names and what its packages ask of each other."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.standins.mirror import Deb, Mirror

UNIT = """[Unit]
Description=Stand-in for the NVIDIA Persistence Daemon
[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
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
