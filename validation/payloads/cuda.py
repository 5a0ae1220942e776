"""Does CUDA start on every GPU of a node, and does a first kernel compute rightly?

The cheap part of `compute`, for runs that measure no speed: what torch says when it cannot start is
known of each node before ranks of several nodes wait for each other. All GPUs are started at once,
each in a process of its own; nothing is timed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from validation.payloads import compute, gpu_process
from validation.payloads.config import require_positive


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is started.

    gpus            how many the node has, or how many instances of MIG
    mig             they are instances of MIG
    start_limit_s   what it may take to import torch and start CUDA on all of them, in seconds
    nonce           whose answer this is: it comes back in the document
    """

    gpus: int
    mig: bool = False
    start_limit_s: float = 120
    nonce: str = ""

    def __post_init__(self) -> None:
        require_positive(self, "gpus", "start_limit_s")


def measure(
    config: Config,
    environ: Mapping[str, str] = os.environ,
    command: Sequence[str] | None = None,
) -> dict[str, Any]:
    """gpus: index, and start: what CUDA says of the GPU (gpu_device.start), or {"error": …} alone.

    A GPU that hangs costs its own answer and none of the others'.
    """
    limit_s = config.start_limit_s
    compute_config = compute.Config(gpus=config.gpus, start_limit_s=limit_s, total_s=limit_s)
    budget = compute.Budget(limit_s, time.monotonic)
    worker = list(command or gpu_process.command())
    if config.mig:
        environ = compute.of_instances(environ, limit_s)
    gpus = [
        compute.GpuProcess(
            compute_config, budget, worker, partial(compute.alone, environ, [number])
        )
        for number in range(config.gpus)
    ]
    with ThreadPoolExecutor(config.gpus) as pool:
        try:
            started = list(pool.map(compute.GpuProcess.start, gpus))
        finally:  # of Ctrl-C too: the workers are in groups of their own
            for gpu in gpus:
                gpu.end()
    return {"gpus": [{"index": number, "start": row} for number, row in enumerate(started)]}
