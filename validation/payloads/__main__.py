"""Runs one payload as one task of a Slurm step.

    srun … python -m validation.payloads NAME CONFIG

NAME is node, host, host_speed, health, cuda, compute, dcgm, isolation, pairs, all_reduce, ddp or
pipeline; CONFIG is a JSON object, see each payload's Config. The answer is one JSON document on one
line of standard output: from rank 0 of a collective payload, and from every task of the others,
which look at one node. Everything else goes to standard error. An error ends the payload with a
line there that begins with "plumbline: ", after one with "plumbline: blamed HOST,…" where it is
known whose fault it is; a wrong sum is no error but a measurement. Lines that begin with
"plumbline: stage" say how far each rank is.
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
    compute,
    cuda,
    dcgm,
    ddp,
    document,
    health,
    host,
    host_speed,
    isolation,
    node,
    pipeline,
)
from validation.payloads.config import GroupConfig, load
from validation.payloads.group import Group, joined
from validation.payloads.rendezvous import node_name
from validation.payloads.watch import complain

USAGE = "usage: python -m validation.payloads NAME CONFIG"


@dataclass(frozen=True)
class Collective:
    """A payload that all ranks run together."""

    config: type[GroupConfig]
    measure: Callable[[Any, Group], dict[str, Any]]


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
}
COLLECTIVES = {
    "pairs": Collective(all_reduce.Config, all_reduce.measure),  # of two nodes each
    "all_reduce": Collective(all_reduce.Config, all_reduce.measure),
    "ddp": Collective(ddp.Config, ddp.measure),
    "pipeline": Collective(pipeline.Config, pipeline.measure),
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
    try:
        line = run(name, config, os.environ)
    except CannotRun as error:
        complain(f"{_who(name)}: {error}", error.blamed)
        time.sleep(error.linger_s)
        return 1
    except Exception as error:
        traceback.print_exc()
        complain(f"{_who(name)}: {type(error).__name__}: {first_line(error)}")
        return 1
    if line is not None:
        # What a TaskProlog printed may lack its newline: the document is on a line of its own.
        document.write_line(stdout, f"\n{line}")
    return 0


def run(name: str, config: str, environ: Mapping[str, str]) -> str | None:
    """The document of one payload, or None on the ranks that leave it to rank 0."""
    if (alone := OF_NODE.get(name)) is not None:
        what = load(alone.config, config)
        return document.encode(name, node.proof(environ), alone.measure(what), what.nonce)
    payload = COLLECTIVES[name]
    loaded = load(payload.config, config)
    with joined(loaded, environ) as group:
        measured = payload.measure(loaded, group)
        proof = group.proof()
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
