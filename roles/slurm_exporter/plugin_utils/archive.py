"""The exporter as one file: what of the checkout it needs, and nothing else."""

from __future__ import annotations

from pathlib import Path

from playbooks.plugin_utils import packed

MAIN = """\
import sys

from validation.exporters.slurm.main import main

sys.exit(main(sys.argv[1:]))
"""

# What of the validation the exporters build on.
BELOW = ("__init__.py", "model.py", "nodelist.py")
OWN = ("__init__.py", "common.py", "slurm")
PACKAGES = ("prometheus-client",)


def wanted(place: Path) -> bool:
    return place.parts[1] in BELOW or (place.parts[1] == "exporters" and place.parts[2] in OWN)


def content() -> bytes:
    """The archive; the same checkout gives the same bytes. Raises packed.NotPackable."""
    return packed.pack(MAIN, packed.own("validation", wanted), packed.installed(PACKAGES))
