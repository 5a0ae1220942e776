"""A stand-in for the distribution's OpenSM that starts without a card, with units like Debian's."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.standins.mirror import Deb, Mirror

UNITS = "/usr/lib/systemd/system"
ALL = """[Unit]
Description=Stand-in for the subnet managers of all ports
[Service]
Type=oneshot
EnvironmentFile=/etc/default/opensm
ExecStart=/bin/sh -c '[ "$PORTS" != ALL ] || PORTS="0x0000000000000001 0x0000000000000002"; \\
    for port in $PORTS; do systemctl start opensm@$port; done'
RemainAfterExit=on
[Install]
WantedBy=multi-user.target
"""
ONE = """[Unit]
Description=Stand-in for the subnet manager %I
PartOf=opensm.service
[Service]
ExecStart=/usr/sbin/opensm --guid %I
"""
PROGRAM = """#!/bin/sh
[ "$2" != 0x00000000000000ff ] || exit 1
exec sleep infinity
"""

if __name__ == "__main__":
    opensm = Deb(
        "opensm",
        "99.0-1",
        files={
            f"{UNITS}/opensm.service": ALL,
            f"{UNITS}/opensm@.service": ONE,
            "/usr/sbin/opensm": PROGRAM,
        },
    )
    Mirror(Path(sys.argv[1])).apt("opensm", [opensm])
