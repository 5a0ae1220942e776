"""Slurm can use every node, and knows it as it was declared.

What it checks   sinfo lists the node, in a state in which it takes jobs, with the declared CPUs,
                 memory and GPUs, these of the declared type
Why it matters   a node that is down, drained or unknown takes no work; nobody notices until a job
                 waits for it. The node gets no job of this run.
What to do       Read Slurm's reason. A node that is down does not answer: look at its power, its
                 network and slurmd. A drained one was taken out on purpose or by a health check:
                 mend what the reason says, then give it back. `inval` or wrong numbers: the node
                 and slurm.conf disagree; `slurmd -C` on the node prints what it really has. GPUs of
                 another type: the model in node_gpus, or slurm_node_gres, is not what slurm.conf
                 has, and Slurm would refuse the jobs.
                 $ scontrol show node {node}
                 $ ssh {node} systemctl status slurmd munge
                 $ scontrol update nodename={node} state=resume
"""

import re
from collections import Counter

from validation.model import Metric, Node, NodeState, Result, Subject, Threshold, Tier, Verdict

NAME = "slurm_state"
TIER = Tier.NODE
PAYLOAD = None

# States in which a node takes a job, now or when a running one ends. Anything else does not,
# nor does a node with a flag: * no answer, ~ # % ! power saving, $ maintenance, @ ^ reboot.
_TAKES_JOBS = ("idle", "mixed", "allocated", "completing", "planned")
_BUSY = ("mixed", "allocated", "completing")
_RESERVED = ("maint", "reserved")  # idle, and for the jobs of a reservation
_HARMLESS_FLAGS = "-"  # planned for a job of higher priority
_ASLEEP = "~#"  # a job wakes it
_FLAGS = {
    "*": "does not answer",
    "~": "is powered down",
    "#": "is powering up",
    "%": "is powering down",
    "!": "is about to be powered down",
    "$": "is in a maintenance reservation",
    "@": "is about to reboot",
    "^": "is rebooting",
}
# What somebody did on purpose, and what passes: the node is not judged, and nobody is to mend it.
_PASSING = "%!$@^"

_EXPECTED = Threshold("in", "service", "", "defined", "states in which Slurm gives jobs")


def evaluate(node: Node, state: NodeState | None, reserved: bool = False) -> Result:
    """`reserved` says that the jobs run inside of a reservation."""
    if state is None:
        return _result(node, "unknown", Verdict.FAIL, "Slurm does not know this node")
    base, flags = _split(state.state)
    reason = f" ({state.reason})" if state.reason else ""
    if base in _RESERVED and not flags.strip(_ASLEEP):
        if not reserved:
            message = f"the node is in a reservation{reason}: give --reservation to judge it"
            return _result(node, state.state, Verdict.INCONCLUSIVE, message)
    elif base not in _TAKES_JOBS:
        return _result(node, state.state, Verdict.FAIL, f"Slurm says {state.state}{reason}")
    flags = flags.translate(dict.fromkeys(map(ord, _ASLEEP + ("$" if reserved else ""))))
    if flags:
        told = " and ".join(_FLAGS.get(flag, f"has the flag {flag}") for flag in flags)
        only_passing = not flags.strip(_PASSING)
        verdict = Verdict.INCONCLUSIVE if only_passing else Verdict.FAIL
        return _result(node, state.state, verdict, f"the node {told}{reason}")
    if disagreements := _disagreements(node, state):
        return _result(node, state.state, Verdict.FAIL, "; ".join(disagreements))
    return _result(node, state.state, Verdict.PASS, "")


def free(state: NodeState) -> bool:
    """Whether a job of ours could start at once."""
    base, flags = _split(state.state)
    return base in ("idle", *_RESERVED) and not flags.strip("$") and "-" not in state.state


def busy(state: NodeState) -> bool:
    """Whether other jobs run on the node."""
    return _split(state.state)[0] in _BUSY


def completing(state: NodeState) -> bool:
    """Whether Slurm waits for the node to finish with a job that has ended."""
    return _split(state.state)[0] == "completing"


def asleep(state: NodeState) -> bool:
    """Whether power saving has the node switched off, or is switching it on."""
    return any(flag in state.state for flag in _ASLEEP)


def out_of_service(state: NodeState) -> bool:
    """Whether Slurm does not use the node, and nobody meant it so."""
    base, flags = _split(state.state)
    usable = base in (*_TAKES_JOBS, *_RESERVED)
    return not usable or bool(flags.strip(_PASSING + _ASLEEP))


def _split(state: str) -> tuple[str, str]:
    match = re.match(r"([a-z_]*)(.*)", state.lower(), re.DOTALL)
    assert match is not None  # both halves may be empty
    base, flags = match.groups()
    return base, "".join(flag for flag in flags if flag not in _HARMLESS_FLAGS)


def _disagreements(node: Node, state: NodeState) -> list[str]:
    found = []
    if state.cpus != node.cpus:
        found.append(f"Slurm counts {state.cpus} CPUs, {node.cpus} are declared")
    if state.memory_mb is None or state.memory_mb < node.memory_mb:
        found.append(f"Slurm counts {state.memory_mb} MB, {node.memory_mb} are declared")
    gpus, declared = gpus_of(state.gres), gpus_of(node.gpus.asked)
    if gpus.total() != declared.total():
        what = "MIG instances" if node.gpus.mig else "GPUs"
        found.append(f"Slurm counts {gpus.total()} GPUs, {declared.total()} {what} are declared")
    elif "" not in declared and gpus != declared:
        # Jobs name the type. One that Slurm does not have, or has elsewhere, gets them refused.
        found.append(f"Slurm has {_shown(gpus)}, {_shown(declared)} is declared")
    return found


def gpus_of(gres: str) -> Counter[str]:
    """How many GPUs of each type a GRES string has; "" for those without a type.

    >>> gpus_of("gpu:h100:8(S:0-1),shard:16")
    Counter({'h100': 8})
    """
    found: Counter[str] = Counter()
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, _, rest = item.strip().partition(":")
        if name == "gpu":
            kind, _, count = rest.rpartition(":")
            if not count.isdigit():  # "gpu" and "gpu:h100" are one
                kind, count = rest, "1"
            found[kind] += int(count)
    return found


def _shown(gpus: Counter[str]) -> str:
    words = [f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in gpus.items()]
    return ",".join(sorted(words))


def _result(node: Node, state: str, verdict: Verdict, message: str) -> Result:
    subject = Subject.node(node.name)
    blamed = () if verdict is Verdict.INCONCLUSIVE else None
    value = Metric("state", state)
    return Result(NAME, TIER, subject, verdict, message, value, _EXPECTED, blamed=blamed)
