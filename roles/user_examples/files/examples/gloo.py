"""What torch lacks on CPUs, where processes talk through Gloo; most of it in releases before 2.8.

Nothing of it is used with GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.distributed import pipelining

MENDED = (2, 8)


def mend() -> None:
    """Makes torch's own parts do over Gloo what they do over NCCL."""
    dist.reduce_scatter_tensor = averaging(dist.reduce_scatter_tensor)
    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) < MENDED:
        for name in ("record_event", "wait_event"):
            setattr(torch.cpu.Stream, name, lambda *_: None)
        for name in ("get_fwd_send_ops", "get_bwd_send_ops"):
            send = getattr(pipelining.PipelineStage, name)
            setattr(pipelining.PipelineStage, name, holding(send))
        one_f_one_b: Any = pipelining.Schedule1F1B
        one_f_one_b.step = dividing(one_f_one_b.step)
        fsdp: Any = import_module("torch.distributed.fsdp._fully_shard._fsdp_param_group")
        fsdp.foreach_all_gather_copy_out = unseen(fsdp.foreach_all_gather_copy_out)


def averaging(reduce_scatter: Callable[..., Any]) -> Callable[..., Any]:
    """Gloo gives the sum where it is asked for the mean (pytorch#162338)."""

    def mean(output: torch.Tensor, *rest: Any, **options: Any) -> Any:
        if options.get("op") != dist.ReduceOp.AVG:
            return reduce_scatter(output, *rest, **options)
        assert not options.pop("async_op", False)
        options["op"] = dist.ReduceOp.SUM
        reduce_scatter(output, *rest, **options)
        output /= dist.get_world_size(options.get("group"))
        return None

    return mean


def holding(send: Callable[..., list[dist.P2POp]]) -> Callable[..., list[dist.P2POp]]:
    """A send that nobody holds may never be made (pytorch#132644)."""
    held: list[dist.Work] = []

    def post(*arguments: Any) -> list[dist.P2POp]:
        held[:] = [work for work in held if not work.is_completed()]
        if operations := send(*arguments):
            held.extend(dist.batch_isend_irecv(operations))
        return []

    return post


def unseen(gather: Callable[..., None]) -> Callable[..., None]:
    """A parameter that is gathered again, for the backward pass, is none that was changed."""

    def again(result: Any, parameters: Any, group: Any) -> None:
        with ExitStack() as versions:
            for parameter in parameters:
                for tensor in getattr(parameter, "all_gather_outputs", ()):
                    versions.enter_context(_unsafe_preserve_version_counter(tensor))
            gather(result, parameters, group)

    return again


def dividing(step: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a batch is the mean of those of its microbatches, as scale_grads has it."""

    def divided(schedule: Any, *arguments: Any, **options: Any) -> Any:
        output = step(schedule, *arguments, **options)
        for parameter in schedule._stage.submod.parameters():
            parameter.grad /= schedule._n_microbatches
        return output

    return divided
