"""This machine alone (`--local`): its node tier, without Slurm, inventory or Ansible.

What Slurm does for a cluster, the launcher does here by itself: it starts a payload, waits, and
ends its process group at the limit. What is declared is what the machine shows of itself, so only
checks are made that hold it against something else.
"""

import socket
from collections.abc import Mapping, Sequence

from cluster.declaration import Declaration, Gpus, Node, Partition
from cluster.errors import EnvironmentProblem
from cluster.slurm.node_states import NodeState
from validation import thresholds
from validation.model import Accounting, Allocation, Contact, Job
from validation.payloads import node
from validation.slurm import job as jobs
from validation.slurm.client import CommandLineBatch
from validation.transport.here import Here

SUITE = "local"
_PARTITION = "here"


def declaration(python: str, name: str | None = None) -> Declaration:
    """This machine as a cluster of one node. Raises EnvironmentProblem if it has no GPU."""
    measured = node.measure(node.Config())
    here = Node(
        name or socket.gethostname(),
        measured["cpus"],
        measured["memory_mb"],
        gpus(
            measured["gpu_device_nodes"],
            [gpu["name"] for gpu in measured["gpus"]],
            measured["nvml"],
        ),
        "none",
    )
    partition = Partition(_PARTITION, (here.name,), True)
    nodes = {here.name: here}
    return Declaration("this machine", (here.name,), (), python, (partition,), nodes)


def gpus(device_nodes: int, names: Sequence[str], nvml: str | None) -> Gpus:
    """The GPUs that a machine shows, by the name of the thresholds that know them.

    Raises EnvironmentProblem for none, and for more than one model.
    """
    count = max(device_nodes, len(names))
    if count == 0:
        why = f" ({nvml})" if nvml else ""
        raise EnvironmentProblem(
            f"this machine has no GPU: there is no /dev/nvidia0, and NVML lists none{why}; start "
            "--local on one that has, or give -i INVENTORY to prove a cluster"
        )
    models = {model_of(name) for name in names} or {"unknown"}
    if len(models) > 1:
        raise EnvironmentProblem(
            f"this machine has GPUs of more than one model ({', '.join(sorted(set(names)))}); "
            "--local judges machines of one"
        )
    return Gpus(models.pop(), count)


def model_of(name: str) -> str:
    """Which thresholds are meant by a name of NVML's; a word made of it where none knows it."""
    for model in thresholds.shipped_models():
        known = thresholds.load(model).model
        if known and name in known.nvml_names:
            return model
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


class LocalClient:
    """Runs jobs as processes of this machine."""

    via = "this machine"
    notes: tuple[str, ...] = ()

    def __init__(self, run_id: str, python: str) -> None:
        self._run_id = run_id
        self._python = python
        self._batches = 0

    def node_states(self) -> tuple[str, Mapping[str, NodeState]]:
        return "", {}

    def contact(self, names: Sequence[str]) -> Contact:
        return Contact()

    def accounting(self) -> Accounting:
        return Accounting("none", configured=False)

    def knows_containers(self) -> bool:
        return False

    def prepare(
        self,
        lanes: Sequence[Sequence[Job]],
        at_once: int,
        shared: Sequence[Allocation] = (),
        slowest_start_s: float | None = None,
    ) -> CommandLineBatch:
        self._batches += 1
        order = jobs.batch(self._run_id, lanes, self._python, at_once, how=jobs.local_command)
        folder = f"/tmp/plumbline-{self._run_id}-{self._batches}"
        return CommandLineBatch(Here(), folder, order)
