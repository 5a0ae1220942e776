"""The validation as one file, for a host that submits its jobs by a timer."""

from __future__ import annotations

from playbooks.plugin_utils import packed

# It unpacks itself: suites, thresholds and templates have to be files, and so has what jobs get.
MAIN = """\
import sys, tempfile, zipfile

with tempfile.TemporaryDirectory(prefix="plumbline-validation-") as folder:
    program = ("python3", sys.path[0])
    with zipfile.ZipFile(sys.path[0]) as packed:
        packed.extractall(folder)
    sys.path[0] = folder
    from validation.run import main

    status = main(sys.argv[1:], program)
sys.exit(status)
"""

# What runs on nodes: a job's task, and the process that it starts for each GPU.
PAYLOADS = """\
from validation.payloads.__main__ import main
from validation.payloads.gpu_worker import main
"""

DATA = ("cluster", "validation", "validation/slurm/look.py")
PACKAGES = ("PyYAML", "Jinja2", "MarkupSafe")


def content() -> bytes:
    """The archive; the same checkout gives the same bytes. Raises packed.NotPackable."""
    return packed.pack(MAIN, packed.own(MAIN, PAYLOADS, data=DATA), packed.installed(PACKAGES))
