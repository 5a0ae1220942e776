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
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode
"""
# It ends without its library, on which the package does not depend
# (https://github.com/canonical/nvidia-graphics-drivers/issues/29), and without a driver.
DAEMON = """#!/bin/sh
for needed in /usr/lib/libnvidia-cfg1.so.1 /proc/driver/nvidia/version; do
    [ -e $needed ] || { echo "nvidia-persistenced: there is no $needed" >&2; exit 1; }
done
case "$*" in
    --persistence-mode) printf 'gpu.%s.persistence = 1\\n' 0 1 >> /etc/plumbline-fake-nvml.conf ;;
esac
sleep infinity &
"""
VERSIONS = ("580.95.05-1", "580.105.08-1", "590.44.01-1")


def driver(version: str) -> list[Deb]:
    """On Debian a driver accepts any newer one of what it depends on."""
    return [
        Deb("nvidia-driver-cuda", version, depends=("nvidia-modprobe (>= 580.65.06)",)),
        Deb("nvidia-modprobe", version),
        Deb("libnvidia-cfg1", version, files={"/usr/lib/libnvidia-cfg1.so.1": version}),
        Deb(
            "nvidia-persistenced",
            version,
            files={
                "/usr/bin/nvidia-persistenced": DAEMON,
                "/usr/lib/systemd/system/nvidia-persistenced.service": UNIT,
            },
        ),
    ]


if __name__ == "__main__":
    packages = [package for version in VERSIONS for package in driver(version)]
    Mirror(Path(sys.argv[1])).apt("cuda", packages)
