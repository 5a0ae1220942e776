"""What all examples begin with: one process for each GPU, or for each CPU where there is no GPU.

torchrun starts the processes and tells each its place: RANK, LOCAL_RANK and WORLD_SIZE.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Group:
    rank: int  # of all processes, 0 to size - 1
    size: int
    local_rank: int  # of those on this node
    device: torch.device

    def say(self, text: str) -> None:
        """Print once, not once in each process."""
        if self.rank == 0:
            print(text, flush=True)


@contextmanager
def joined() -> Iterator[Group]:
    """Join the other processes; leave them at the end, also when something failed.

    The program's last block: without GPUs the process ends with it.
    """
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if torch.cuda.is_available():
        device, backend = torch.device("cuda", local), "nccl"
        torch.cuda.set_device(device)
    else:
        device, backend = torch.device("cpu"), "gloo"
    dist.init_process_group(backend)
    try:
        group = Group(rank, size, local, device)
        where = f"{dist.get_world_size()} processes, {backend}, torch {torch.__version__}"
        group.say(
            f"{where}, on {torch.cuda.get_device_name(device) if backend == 'nccl' else 'CPUs'}"
        )
        yield group
    finally:
        dist.destroy_process_group()
    if backend == "gloo":
        # Models and meshes still hold the group, and its threads now and then abort Python while it
        # tidies up ("terminate called without an active exception"): end without tidying up.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
