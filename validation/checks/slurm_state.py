"""Slurm can use every node, and has it as it was declared.

What it checks   sinfo lists the node, in a state in which it accepts jobs, with the declared CPUs,
                 memory, GPUs and GPU type. Its slurmd accepts connections.
Why it matters   A node that is down, drained or unknown runs no jobs, and nobody notices until a
                 job waits for it. The node gets no job of this run.
What to do       Drained: an operator or a health check took the node out of service; repair what
                 the reason says, then resume it. Down: the node does not answer; check its power,
                 its network and slurmd. No slurmd: its port refuses connections, so slurmd has
                 stopped within the last minutes or listens on another port. Other numbers: the node
                 and slurm.conf disagree; `slurmd -C` on the node prints what it really has. GPUs of
                 another type: the model in node_gpus, or slurm_node_gres, differs from slurm.conf,
                 and Slurm would refuse the jobs. Unknown to Slurm: the node is missing in
                 slurm.conf, or the inventory has another name for it. Kept back: it is in a
                 reservation, in maintenance, rebooting or powered down on purpose; wait, or give
                 the run the reservation. A new state: this release of Slurm has a state that is not
                 known here; Slurm's manual says what it means.
                 $ scontrol show node {node}
                 $ ssh {node} systemctl status slurmd munge
                 $ scontrol update nodename={node} state=resume
"""

import re
from collections import Counter
from dataclasses import replace

from cluster.declaration import Node
from cluster.slurm import node_states
from cluster.slurm.node_states import NodeState
from validation.model import Metric, Result, Subject, Threshold, Tier, Verdict, When

NAME = "slurm_state"
TIER = Tier.NODE
PAYLOAD = None

CAUSES = {
    "Drained": When(
        r"Slurm says (drain|fail)",
        (
            "scontrol show node {node}",
            "scontrol update nodename={node} state=resume",
        ),
    ),
    "Down": When(
        r"Slurm says (down|error|unknown|future)|does not answer( |$|\()",
        (
            "ssh {node} systemctl status slurmd munge",
            "ssh {node} journalctl --unit slurmd --lines 50",
        ),
    ),
    "No slurmd": When(
        r"slurmd does not answer:",
        (
            "ssh {node} systemctl status slurmd",
            "ssh {node} journalctl --unit slurmd --lines 50",
        ),
    ),
    "Other numbers": When(
        r"Slurm counts|Slurm says inval",
        (
            "scontrol show node {node}",
            "ssh {node} sudo slurmd -C",
        ),
    ),
    "GPUs of another type": When(r"Slurm has", ("scontrol show node {node}",)),
    "A new state": When(
        r"^Slurm says (?!drain|fail|down|error|unknown|future|inval)\S+$",
        ("scontrol show node {node}",),
    ),
    "Unknown to Slurm": When(r"does not know this node", ("scontrol show nodes | grep NodeName",)),
    "Kept back": When(
        r"reservation|the node is|the node has",
        (
            "scontrol show node {node}",
            "scontrol show reservation",
        ),
    ),
}

_EXPECTED = Threshold("in", "service", "", "defined", "states in which Slurm gives jobs")


def evaluate(node: Node, state: NodeState | None, reserved: bool = False) -> Result:
    """`reserved` says that the jobs run inside of a reservation."""
    if state is None:
        return _result(node, "unknown", Verdict.FAIL, "Slurm does not know this node")
    if kept := _kept_back(state, reserved):
        return _result(node, state.state, *kept)
    if disagreements := _disagreements(node, state):
        return _result(node, state.state, Verdict.FAIL, "; ".join(disagreements))
    return _result(node, state.state, Verdict.PASS, "")


def _kept_back(state: NodeState, reserved: bool) -> tuple[Verdict, str] | None:
    """Why Slurm gives the node no job, and what follows; None for a node that takes jobs."""
    base, flags = node_states.split(state.state)
    reason = f" ({state.reason})" if state.reason else ""
    if base in node_states.RESERVED and not flags.strip(node_states.ASLEEP):
        if not reserved:
            message = f"the node is in a reservation{reason}: give --reservation to judge it"
            return Verdict.INCONCLUSIVE, message
    elif why := node_states.on_purpose(state, reserved):
        return Verdict.INCONCLUSIVE, f"the node {why}{reason}"
    elif base not in node_states.TAKES_JOBS:
        return Verdict.FAIL, f"Slurm says {state.state}{reason}"
    flags = flags.translate(dict.fromkeys(map(ord, node_states.ASLEEP + ("$" if reserved else ""))))
    if not flags:
        return None
    words = " and ".join(node_states.FLAGS.get(flag, f"has the flag {flag}") for flag in flags)
    only_passing = not flags.strip(node_states.PASSING)
    verdict = Verdict.INCONCLUSIVE if only_passing else Verdict.FAIL
    return verdict, f"the node {words}{reason}"


def deaf(result: Result, place: str, asked_from: str, nobodys: bool) -> Result:
    """The result of a node that Slurm takes for well, and where nobody listens for it.

    `nobodys` says that it may as well be the way there.
    """
    state = result.value.value if result.value else "nothing"
    message = f"Slurm says {state}, but slurmd does not answer: {place} refuses {asked_from}"
    if nobodys:
        message += ", as do all other nodes"
    return replace(result, verdict=Verdict.FAIL, message=message, blamed=() if nobodys else None)


def _disagreements(node: Node, state: NodeState) -> list[str]:
    disagreements = []
    if state.cpus != node.cpus:
        disagreements.append(f"Slurm counts {state.cpus} CPUs, {node.cpus} are declared")
    if state.memory_mb is None or state.memory_mb < node.memory_mb:
        disagreements.append(f"Slurm counts {state.memory_mb} MB, {node.memory_mb} are declared")
    gpus, declared = gpus_of(state.gres), gpus_of(node.gpus.request)
    if gpus.total() != declared.total():
        what = "MIG instances" if node.gpus.mig else "GPUs"
        disagreements.append(
            f"Slurm counts {gpus.total()} GPUs, {declared.total()} {what} are declared"
        )
    elif "" not in declared and gpus != declared:
        # Jobs name the type. One that Slurm does not have, or has elsewhere, gets them refused.
        disagreements.append(f"Slurm has {_shown(gpus)}, {_shown(declared)} is declared")
    return disagreements


def gpus_of(gres: str) -> Counter[str]:
    """How many GPUs of each type a GRES string has; "" for those without a type.

    >>> gpus_of("gpu:h100:8(S:0-1),shard:16")
    Counter({'h100': 8})
    """
    counts: Counter[str] = Counter()
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, _, rest = item.strip().partition(":")
        if name == "gpu":
            kind, _, count = rest.rpartition(":")
            if not count.isdigit():  # "gpu" and "gpu:h100" are one
                kind, count = rest, "1"
            counts[kind] += int(count)
    return counts


def _shown(gpus: Counter[str]) -> str:
    words = [f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in gpus.items()]
    return ",".join(sorted(words))


def _result(node: Node, state: str, verdict: Verdict, message: str) -> Result:
    subject = Subject.node(node.name)
    blamed = () if verdict is Verdict.INCONCLUSIVE else None
    value = Metric("state", state)
    return Result(NAME, TIER, subject, verdict, message, value, _EXPECTED, blamed=blamed)
