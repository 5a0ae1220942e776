"""Who this rank is and where all ranks meet, from what Slurm tells every task.

There is no launcher between srun and the payload: one task is one rank.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from cluster import hostlist
from cluster.errors import CannotRun

# One port per step, so that one does not meet the ranks of another: what hung in the step before
# may still be there. They lie below those that Linux hands out by itself (32768-60999), where a
# stranger's connection could hold one.
FIRST_PORT = 20_000
PORTS = 10_000
_STEPS = 16  # of a job that have ports of their own


@dataclass(frozen=True)
class Rendezvous:
    """One rank's place in the job.

    rank, local_rank   among all ranks and among those of its node; both count from 0
    world_size         number of ranks
    nodes              the step's nodes in Slurm's order
    master_addr        the first of them; rank 0 runs there and listens on master_port
    """

    rank: int
    local_rank: int
    world_size: int
    nodes: tuple[str, ...]
    master_addr: str
    master_port: int


def from_slurm(environ: Mapping[str, str]) -> Rendezvous:
    """The rendezvous of one srun task.

    Raises CannotRun when a variable is missing or makes no sense. Nothing is guessed: a rank that
    took itself for the only one would report success for a job that never met.
    """
    rank = _count(environ, "SLURM_PROCID")
    local_rank = _count(environ, "SLURM_LOCALID")
    world_size = _count(environ, "SLURM_NTASKS")
    if rank >= world_size:
        raise CannotRun(f"SLURM_PROCID is {rank}, but SLURM_NTASKS says {world_size} ranks")
    nodes = _nodes(environ)
    if len(nodes) > world_size:
        raise CannotRun(f"SLURM_NTASKS says {world_size} ranks for {len(nodes)} nodes")
    return Rendezvous(
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        nodes=nodes,
        master_addr=nodes[0],
        master_port=port_of(_count(environ, "SLURM_JOB_ID"), _count(environ, "SLURM_STEP_ID")),
    )


def port_of(job: int, step: int) -> int:
    """Where rank 0 of a step listens."""
    return FIRST_PORT + (job * _STEPS + step % _STEPS) % PORTS


def node_name(environ: Mapping[str, str]) -> str:
    """Slurm's name of this node; outside Slurm the host's own name."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname()


# Variables that change how ranks communicate, whoever set them: the inventory, a TaskProlog.
STEERING = ("NCCL_", "UCX_", "FI_", "OFI_", "GLOO_")


def steering(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables by which a run can differ from another on the same nodes."""
    return {name: environ[name] for name in sorted(environ) if name.startswith(STEERING)}


def _nodes(environ: Mapping[str, str]) -> tuple[str, ...]:
    # the step's list comes first: a step may use fewer nodes than its job holds
    expression = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST")
    if not expression:
        raise CannotRun("neither SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST is set: use srun")
    try:
        return tuple(hostlist.expand(expression))
    except hostlist.HostlistError as error:
        raise CannotRun(str(error)) from error


def _count(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name)
    if text is None:
        raise CannotRun(f"{name} is not set: use srun")
    if not (text.isascii() and text.isdigit()):
        raise CannotRun(f"{name} is {text!r}, not a number")
    return int(text)
