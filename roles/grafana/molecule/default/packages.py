"""This scenario's mirror: two versions of a stand-in for Grafana's package."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.standins.grafana.package import grafana
from tests.standins.mirror import Mirror


def fill(folder: Path) -> None:
    mirror = Mirror(folder)
    mirror.apt("apt", [grafana("1.0.0"), grafana("1.1.0")], suite="stable")
    mirror.file("sha256", mirror.deb("grafana_1.1.0_all.deb", grafana("1.1.0")))
    mirror.file("fingerprint", mirror.key.fingerprint)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
