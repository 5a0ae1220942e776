"""What Slurm runs around jobs for their temporary data.

Slurm's configuration is the cluster's, so it is made here and not in the role that installs the
program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROGRAM = "/usr/local/libexec/plumbline/scratch-job"


def scratch_component(root: str, tmpdir: bool) -> dict[str, list[dict[str, str]]]:
    """The component of slurm.conf; `tmpdir` says whether a job's folder is its TMPDIR, too.

    A node without the program has nothing to do.
    """
    if not root:
        return {"prolog": [], "epilog": [], "task_prolog": []}
    names = ["JOB_SCRATCH", *(["TMPDIR"] if tmpdir else [])]
    task = [
        "#!/bin/sh",
        f"folder={root}/$SLURM_JOB_USER/job-$SLURM_JOB_ID",
        '[ -O "$folder" ] || exit 0',
        *(f'echo "export {name}=$folder"' for name in names),
    ]

    def script(phase: str) -> str:
        return f"#!/bin/sh\n[ ! -x {PROGRAM} ] || exec {PROGRAM} {phase}\n"

    return {
        "prolog": [{"name": "45-scratch", "content": script("begin")}],
        "epilog": [{"name": "45-scratch", "content": script("end")}],
        "task_prolog": [{"name": "scratch", "content": "\n".join([*task, ""])}],
    }


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"scratch_component": scratch_component}
