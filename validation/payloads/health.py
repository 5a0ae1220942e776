"""What the driver knows of a node's GPUs: NVML's values, and the XIDs of the kernel's log.

Standard library only, and NVML is asked by processes of their own (see nvml.py): the node answers
even where a GPU, the driver or pynvml does not. It needs no right that an ordinary user lacks; the
kernel's log may be hidden from one, and the answer says so.
"""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from cluster.readers import kernel_log, nvml
from validation.payloads.config import require_positive


@dataclass(frozen=True, kw_only=True)
class Config:
    """What the node is told.

    nvml_timeout_s   how long NVML may take for the node, and then for all GPUs at once, in seconds
    nonce            whose answer this is: it comes back in the document
    """

    nvml_timeout_s: float = 30.0
    nonce: str = ""

    def __post_init__(self) -> None:
        require_positive(self, "nvml_timeout_s")


def measure(config: Config) -> dict[str, Any]:
    """The state of the GPUs.

    nvml             see nvml.System
    nvml_timeout_s   how long NVML was given
    questions        what each GPU was asked
    gpus             one for each GPU that NVML counts, see nvml.NvmlGpu
    kernel_log       see kernel_log.KernelLog
    software         versions of the kernel, and of torch, None where it is not installed
    """
    system, gpus = nvml.ask(config.nvml_timeout_s)
    return {
        "nvml": asdict(system),
        "nvml_timeout_s": config.nvml_timeout_s,
        "questions": list(nvml.QUESTIONS),
        "gpus": [asdict(gpu) for gpu in gpus],
        "kernel_log": asdict(kernel_log.read()),
        "software": {"kernel": platform.release(), "torch": _torch()},
    }


def _torch() -> str | None:
    """Its version as it was installed: to import it takes seconds, and may fail."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
