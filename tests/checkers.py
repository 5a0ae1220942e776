"""Programs that tests need, such as daemons' checkers: installed, or unpacked by scripts/test."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

UNPACKED = Path(__file__).resolve().parents[1] / ".cache/checkers/usr"
PACKAGES = {
    "age": "age",
    "age-keygen": "age",
    "prometheus": "prometheus",
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
    "promtool": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "rsyslogd": "rsyslog",
}


def checker(name: str) -> list[str]:
    """The command that starts a checker. Where it is missing, the test that asks fails."""
    # Daemons lie where an ordinary user does not look.
    if own := shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"):
        return [own]
    program = shutil.which(name, path=f"{UNPACKED}/bin:{UNPACKED}/sbin")
    if program is None:
        pytest.fail(
            f"{name} is missing: run `scripts/test unit`, which unpacks it, "
            f"or install the distribution's package {PACKAGES[name]}"
        )
    if name != "rsyslogd":
        return [program]
    (modules,) = UNPACKED.glob("lib/*/rsyslog")
    return ["env", f"LD_LIBRARY_PATH={modules.parent}", program, f"-M{modules}"]
