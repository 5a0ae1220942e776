"""The program of the nodes as one file: what of the checkout it needs, and nothing else."""

from __future__ import annotations

from pathlib import Path

from playbooks.plugin_utils import packed

MAIN = """\
import sys

from validation.node_health.main import main

sys.exit(main(sys.argv[1:]))
"""

# The list of all checks reads every one of them, which costs a prolog half a second: a node has the
# modules of those that it asks, and imports them by name.
CHECKS = '"""The rules that the node\'s own checks share with the validator."""\n'
LIST = "validation/checks/__init__.py"

# What only submits jobs and reports, and daemons of their own.
NOT_HERE = ("exporters", "job_report", "report", "slurm", "suites", "transport")
PACKAGES = ("PyYAML", "nvidia-ml-py")


def wanted(place: Path) -> bool:
    return place.parts[1] not in NOT_HERE and place.parent.name != "schema"


def content() -> bytes:
    """The archive; the same checkout gives the same bytes. Raises packed.NotPackable."""
    own = {**packed.own("validation", wanted), LIST: CHECKS.encode()}
    return packed.pack(MAIN, own, packed.installed(PACKAGES))
