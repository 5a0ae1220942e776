"""What all examples begin with: one process for each GPU, or for each CPU where there is no GPU.

torchrun starts the processes and tells each its place: RANK, LOCAL_RANK and WORLD_SIZE.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class Group:
    rank: int  # of all processes, 0 to size - 1
    size: int
    nodes: int
    device: torch.device

    def say(self, text: str) -> None:
        """Print once, not once in each process."""
        if self.rank == 0:
            print(text, flush=True)

    def of_all(self, tensor: Tensor) -> Tensor:
        """The tensors of all processes, one below the other."""
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    def mean(self, tensor: Tensor) -> float:
        """Of a number that each process has."""
        return self.of_all(tensor.detach().reshape(1)).mean().item()


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
        import gloo  # noqa: PLC0415 - nothing that GPUs need

        gloo.mend()
        device, backend = torch.device("cpu"), "gloo"
    dist.init_process_group(backend)
    nodes = size // int(os.environ.get("LOCAL_WORLD_SIZE", size))
    group = Group(rank, size, nodes, device)
    where = f"{dist.get_world_size()} processes, {backend}, torch {torch.__version__}"
    group.say(f"{where}, on {torch.cuda.get_device_name(device) if backend == 'nccl' else 'CPUs'}")
    if backend == "nccl":
        try:
            yield group
        finally:
            dist.destroy_process_group()
        return
    # Gloo's threads now and then abort Python while it tidies up ("terminate called without an
    # active exception"), or wait for it for ever: end without tidying up.
    status = 1
    try:
        yield group
        dist.barrier()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def apart(these: Iterable[Tensor], those: Iterable[Tensor]) -> float:
    """How far two lists of tensors are apart: the largest difference, beside the largest value."""
    pairs = list(zip(these, those, strict=True))
    largest = max(that.abs().max().item() for _, that in pairs)
    return max((this - that).abs().max().item() for this, that in pairs) / largest


def whole(tensor: Tensor) -> Tensor:
    """Put together from the parts of all GPUs, where it is cut."""
    full: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full
