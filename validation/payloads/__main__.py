"""Runs one payload as one task of a Slurm step.

    srun … python -m validation.payloads NAME CONFIG

NAME is a key of OF_NODE or COLLECTIVES below; CONFIG is a JSON object, see each payload's Config.
The answer is one JSON document on one line of standard output: from rank 0 of a collective payload,
and from every task of the others, which look at one node.
Everything else goes to standard error. An error ends the payload with a line there that begins
with "plumbline: ", after one with "plumbline: blamed HOST,…" where it is known whose fault it is;
a wrong sum is no error but a measurement. Lines that begin with "plumbline: stage" say how far
each rank is.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from cluster.errors import CannotRun
from cluster.text import first_line
from validation.payloads import (
    all_reduce,
    boards,
    checkpoint,
    collectives,
    compute,
    cuda,
    dcgm,
    ddp,
    document,
    expert_parallel,
    fsdp,
    health,
    host,
    host_speed,
    inference,
    isolation,
    killed,
    look,
    mesh,
    node,
    pairs,
    pipeline,
    same_sums,
    scaling,
    schedules,
    soak,
    tensor_parallel,
)
from validation.payloads.config import GroupConfig, load
from validation.payloads.group import Group, joined
from validation.payloads.rendezvous import node_name
from validation.payloads.watch import complain

USAGE = "usage: python -m validation.payloads NAME CONFIG"


@dataclass(frozen=True)
class Collective:
    """A payload that all ranks run together.

    killed    each of them ends by SIGKILL, see killed
    watched   NVML is asked of their boards meanwhile, see boards
    """

    config: type[GroupConfig]
    measure: Callable[[Any, Group], dict[str, Any]]
    killed: bool = False
    watched: bool = False


@dataclass(frozen=True)
class OfNode:
    """A payload that one task runs, on a node of its own."""

    config: type[Any]
    measure: Callable[[Any], dict[str, Any]]


# The module of each payload has its own `Config`, what it is told, beside `measure`.
OF_NODE = {
    "node": OfNode(node.Config, node.measure),
    "host": OfNode(host.Config, host.measure),
    "host_speed": OfNode(host_speed.Config, host_speed.measure),
    "health": OfNode(health.Config, health.measure),
    "cuda": OfNode(cuda.Config, cuda.measure),
    "compute": OfNode(compute.Config, compute.measure),
    "dcgm": OfNode(dcgm.Config, dcgm.measure),
    "isolation": OfNode(isolation.Config, isolation.measure),
    "look": OfNode(look.Config, look.measure),
    "soak": OfNode(soak.Config, soak.measure),
}
COLLECTIVES = {
    "pairs": Collective(all_reduce.Config, pairs.measure),
    "all_reduce": Collective(all_reduce.Config, all_reduce.measure, watched=True),
    "collectives": Collective(collectives.Config, collectives.measure, watched=True),
    "ddp": Collective(ddp.Config, ddp.measure, watched=True),
    "pipeline": Collective(pipeline.Config, pipeline.measure, watched=True),
    "fsdp": Collective(fsdp.Config, fsdp.measure),
    "tensor_parallel": Collective(tensor_parallel.Config, tensor_parallel.measure),
    "schedules": Collective(schedules.Config, schedules.measure),
    "expert_parallel": Collective(expert_parallel.Config, expert_parallel.measure),
    "mesh": Collective(mesh.Config, mesh.measure),
    "checkpoint": Collective(checkpoint.Config, checkpoint.write, killed=True),
    "resume": Collective(checkpoint.Config, checkpoint.resume),
    "inference": Collective(inference.Config, inference.measure),
    "scaling": Collective(scaling.Config, scaling.measure),
    "same_sums": Collective(same_sums.Config, same_sums.measure),
}
NAMES = (*OF_NODE, *COLLECTIVES)


def main(arguments: Sequence[str]) -> int:
    """Runs the payload. Returns the status to `end` with: 0 once its document is written, 1 when
    the payload could not run, 2 for wrong arguments.
    """
    stdout = document.claim_stdout()
    if len(arguments) != 2 or arguments[0] not in NAMES:
        complain(f"{USAGE}, with NAME one of {', '.join(NAMES)}")
        return 2
    name, config = arguments
    if name in COLLECTIVES and COLLECTIVES[name].killed:
        status, line = _killed(name, config)
    else:
        status, line = _answered(name, config)
    if line:
        # What a TaskProlog printed may lack its newline: the document is on a line of its own.
        document.write_line(stdout, f"\n{line}")
    return status


def _answered(
    name: str, config: str, report: killed.Report | None = None
) -> tuple[int, str | None]:
    """The status of a payload and its document, or its complaint."""
    try:
        return 0, run(name, config, os.environ, report)
    except CannotRun as error:
        complain(f"{_who(name)}: {error}", error.blamed)
        time.sleep(error.linger_s)
    except Exception as error:
        traceback.print_exc()
        complain(f"{_who(name)}: {type(error).__name__}: {first_line(error)}")
    return 1, None


def _killed(name: str, config: str) -> tuple[int, str | None]:
    """The same of a payload that is killed when it is done."""
    try:
        text = killed.after(lambda report: _answered(name, config, report)[0])
    except CannotRun as error:
        complain(f"{_who(name)}: {error}", (node_name(os.environ),))
        return 1, None
    return (1, None) if text is None else (0, text and document.with_end(text, "SIGKILL"))


def run(
    name: str, config: str, environ: Mapping[str, str], report: killed.Report | None = None
) -> str | None:
    """The document of one payload, or None on the ranks that leave it to rank 0.

    report   takes it (or an empty text) while the group still stands, and does not return
    """
    if (alone := OF_NODE.get(name)) is not None:
        what = load(alone.config, config)
        return document.encode(name, node.proof(environ), alone.measure(what), what.nonce)
    payload = COLLECTIVES[name]
    loaded = load(payload.config, config)
    with joined(loaded, environ) as group:
        if payload.watched:
            measured = boards.watched(
                group, loaded.timeout_s, lambda: payload.measure(loaded, group)
            )
        else:
            measured = payload.measure(loaded, group)
        proof = group.proof()
        if report is not None:
            whole = document.encode(name, proof, measured, loaded.nonce)
            group.part()
            report(whole if group.rank == 0 else "")
    return document.encode(name, proof, measured, loaded.nonce) if group.rank == 0 else None


def _who(name: str) -> str:
    rank = os.environ.get("SLURM_PROCID", "?")
    return f"{name}, rank {rank} on {node_name(os.environ)}"


def end(status: int) -> NoReturn:
    """Ends the process without tidying up.

    The group is left as it is (see group.joined), and at an ordinary end its threads now and then
    abort the interpreter ("terminate called without an active exception"), after the answer or the
    complaint is out.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    end(main(sys.argv[1:]))
