"""This scenario's mirror: stand-ins, nobody's packages. Called with the folder to fill."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.standins.mirror import Deb, Mirror, make_key


def fill(folder: Path) -> None:
    mirror = Mirror(folder)
    tool = [Deb("plumbline-tool", version) for version in ("1.0", "2.0")]
    mirror.apt("flat", tool)
    mirror.apt("unread", tool)
    mirror.apt("suites", [Deb("plumbline-other", "1.0")], suite="stable")
    mirror.apt("unsigned", tool, signed=False)
    # Signed by somebody else than who its key.asc says.
    mirror.apt("foreign", tool, key=make_key("Somebody else"))
    mirror.file("foreign/key.asc", mirror.key.armoured)
    mirror.file("fingerprint", mirror.key.fingerprint)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
