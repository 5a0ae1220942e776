"""The program as one file: what of the checkout it needs, and nothing else."""

from __future__ import annotations

from playbooks.plugin_utils import packed

MAIN = """\
import sys

from roles.nccl_inspector.files.nccl_inspector.main import main

sys.exit(main(sys.argv[1:]))
"""

PACKAGES = ("prometheus-client",)


def content() -> bytes:
    """The archive; the same checkout gives the same bytes. Raises packed.NotPackable."""
    return packed.pack(MAIN, packed.own(MAIN), packed.installed(PACKAGES))
