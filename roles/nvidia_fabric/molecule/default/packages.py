"""Stand-ins of our own for NVIDIA's packages: their names, versions and layout, nothing of theirs.

A newer Fabric Manager than the driver's is there too, as in NVIDIA's repository. The daemons do
what the role counts on: they end at once when another version of the driver is loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.standins.mirror import Deb, Mirror

DRIVERS = ("580.95.05", "580.126.20")
LOADED = "/srv/node/proc/driver/nvidia/version"

UNIT = """[Unit]
Description=Stand-in for {0}
[Service]
ExecStart=/usr/bin/{0}
[Install]
WantedBy=multi-user.target
"""
DAEMON = """#!/bin/sh
if [ "$1" = --version ]; then echo "{0} version is : {1}"; exit; fi
grep -q " {1} " {2} || {{ echo "the loaded driver is not {1}" >&2; exit 1; }}
exec sleep infinity
"""
# Ready, like the real one, when the daemon runs and knows its nodes.
IMEX_CTL = """#!/bin/sh
if systemctl is-active --quiet nvidia-imex && [ -s /etc/nvidia-imex/nodes_config.cfg ]
then echo READY; else echo UNAVAILABLE; fi
"""


def of(driver: str) -> list[Deb]:
    """The packages that are made for one driver."""
    revision = "1ubuntu1" if driver == DRIVERS[1] else "1"
    version = f"{driver}-{revision}"
    manager = DAEMON.format("Fabric Manager", driver, LOADED)
    return [
        Deb("libnvidia-ml1", version, files={f"/usr/lib/nv/libnvidia-ml.so.{driver}": "none\n"}),
        Deb("libnvidia-nscq", version),
        Deb(
            "nvidia-fabricmanager",
            version,
            files={
                "/usr/bin/nv-fabricmanager": manager,
                "/usr/lib/systemd/system/nvidia-fabricmanager.service": UNIT.format(
                    "nv-fabricmanager"
                ),
                "/usr/share/nvidia/nvswitch/fabricmanager.cfg": "LOG_LEVEL=4\nDAEMONIZE=1\n",
            },
        ),
        Deb(
            "nvidia-imex",
            version,
            files={
                "/usr/bin/nvidia-imex": DAEMON.format("IMEX", driver, LOADED),
                "/usr/bin/nvidia-imex-ctl": IMEX_CTL,
                "/usr/lib/systemd/system/nvidia-imex.service": UNIT.format("nvidia-imex"),
                "/etc/nvidia-imex/config.cfg": "LOG_LEVEL=4\n",
            },
        ),
    ]


def main() -> None:
    packages = [package for driver in DRIVERS for package in of(driver)]
    Mirror(Path(sys.argv[1])).apt("cuda", [*packages, Deb("nvlsm", "2025.10.12-1")])


if __name__ == "__main__":
    main()
