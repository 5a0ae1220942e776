"""job-report as one file: what of the checkout it needs, and nothing else."""

from __future__ import annotations

from pathlib import Path

from playbooks.plugin_utils import packed

MAIN = """\
import sys

from validation.job_report.main import main

sys.exit(main(sys.argv[1:]))
"""

MODULES = ("__init__.py", "nodelist.py", "prometheus.py")


def wanted(place: Path) -> bool:
    inside = place.relative_to("validation")
    return inside.as_posix() in MODULES or inside.parts[0] == "job_report"


def content() -> bytes:
    """The archive; the same checkout gives the same bytes. Raises packed.NotPackable."""
    return packed.pack(MAIN, packed.own("validation", wanted))
