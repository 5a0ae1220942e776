"""NCCL's own log of this process: asked for before the first communicator, read after the last.

It lies in a file of its own, so that no other rank's lines come between, in the task's temporary
folder, which goes with the task.
"""

from __future__ import annotations

import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from cluster.readers import nccl_ras
from validation.payloads import nccl_log

_NAME = "nccl.log"


def request(environ: MutableMapping[str, str], *, diagnosed: bool = False) -> Path:
    """Sets NCCL's variables, whatever they were: the log proves over what the ranks spoke.

    Since 2.31 NCCL can look at its ranks as they meet: at GPUs, NVLink, drivers and its own
    settings, which costs nothing, and if `diagnosed` at what they exchange with their peers
    (docs.nvidia.com/deeplearning/nccl/user-guide, Troubleshooting, Diagnostics). A site may set
    either to 0. What it finds comes to standard error, after "NCCL DIAG".

    RAS answers on a port of the job's own, so that nobody asks the RAS of another job on the node.
    """
    environ.setdefault("NCCL_RAS_ADDR", nccl_ras.address_of(environ.get("SLURM_JOB_ID", "")))
    environ.setdefault("NCCL_RUN_RAS_DIAGNOSTICS", "1")
    if diagnosed:
        environ.setdefault("NCCL_RUN_DIAGNOSTICS", "1")
    path = Path(tempfile.mkdtemp()) / _NAME
    environ["NCCL_DEBUG"] = "INFO"
    environ["NCCL_DEBUG_SUBSYS"] = "INIT,BOOTSTRAP,GRAPH,NET,TUNING"
    environ["NCCL_DEBUG_FILE"] = str(path)
    return path


def summary(path: Path) -> dict[str, Any]:
    """What the log shows, for a document."""
    return read(path).to_json()


def read(path: Path) -> nccl_log.Summary:
    """What the log shows; one that is missing shows nothing. Channels connect at first use."""
    return nccl_log.summarize(_text(path))


def complaint(path: Path | None) -> str | None:
    """What NCCL itself last warned of. NCCL writes it to the log alone, not to standard error."""
    return None if path is None else nccl_log.complaint(_text(path))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
