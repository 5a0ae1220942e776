"""job-report as one file: what of the checkout it needs, and nothing else."""

from __future__ import annotations

from playbooks.plugin_utils import packed

MAIN = """\
import sys

from roles.job_report.files.job_report.main import main

sys.exit(main(sys.argv[1:]))
"""

PACKAGES = ("Jinja2", "MarkupSafe")
DATA = ("roles/job_report/files/job_report/month.html.j2",)


def content() -> bytes:
    """The archive; the same checkout gives the same bytes. Raises packed.NotPackable."""
    return packed.pack(MAIN, packed.own(MAIN, data=DATA), packed.installed(PACKAGES))
