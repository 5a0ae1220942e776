"""What `fully_shard` lacks on CPUs with torch before 2.8, such as Debian 13's own 2.6.

A CPU's stream has no events there (2.8 has some that do nothing). A block that is gathered again
for its backward pass counts as changed, and autograd refuses it: so it stays gathered until then.
And Gloo takes reduce-scatter's mean for a sum, without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from validation.payloads.group import release

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

MENDED = (2, 8, 0)


def applies(mesh: DeviceMesh) -> bool:
    import torch

    return mesh.device_type == "cpu" and release(torch.__version__) < MENDED


def mend() -> None:
    """Gives a CPU's stream the events that it lacks. It does one thing after another anyway."""
    import torch

    for name in ("record_event", "wait_event"):
        if not hasattr(torch.cpu.Stream, name):
            setattr(torch.cpu.Stream, name, lambda *_: None)


def average(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    """Makes gradients that were added up the mean that they should be."""
    if not applies(mesh):
        return
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= mesh.size()
