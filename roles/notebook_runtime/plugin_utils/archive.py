"""What notebooks' jobs run, as one file: its modules, and the extension of JupyterLab."""

from __future__ import annotations

from playbooks.plugin_utils import packed

FOLDER = "roles/notebook_runtime/files/notebook"
# The programs that are started there, by name; importing them all makes sure that all are packed.
MAIN = """\
import roles.notebook_runtime.files.notebook.kernel
import roles.notebook_runtime.files.notebook.server
import roles.notebook_runtime.files.notebook.start
import roles.notebook_runtime.files.notebook.tensorboard
"""


def content() -> bytes:
    """The archive; the same checkout gives the same bytes. Raises packed.NotPackable."""
    return packed.pack(MAIN, packed.own(MAIN, data=[f"{FOLDER}/share"]))
