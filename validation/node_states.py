"""What Slurm's states of a node say: whether it takes a job, is busy, sleeps or is gone."""

import re

from validation.model import NodeState

# States in which a node takes a job, now or when a running one ends. Anything else does not,
# nor does a node with a flag: * no answer, ~ # % ! power saving, $ maintenance, @ ^ reboot.
TAKES_JOBS = ("idle", "mixed", "allocated", "completing", "planned")
_BUSY = ("mixed", "allocated", "completing")
RESERVED = ("maint", "reserved")  # idle, and for the jobs of a reservation
_HARMLESS_FLAGS = "-"  # planned for a job of higher priority
ASLEEP = "~#"  # a job wakes it
FLAGS = {
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
PASSING = "%!$@^"


def free(state: NodeState) -> bool:
    """Whether a job of ours could start at once."""
    base, flags = split(state.state)
    return base in ("idle", *RESERVED) and not flags.strip("$") and "-" not in state.state


def busy(state: NodeState) -> bool:
    """Whether other jobs run on the node."""
    return split(state.state)[0] in _BUSY


def completing(state: NodeState) -> bool:
    """Whether Slurm waits for the node to finish with a job that has ended."""
    return split(state.state)[0] == "completing"


def asleep(state: NodeState) -> bool:
    """Whether power saving has the node switched off, or is switching it on."""
    return any(flag in state.state for flag in ASLEEP)


def out_of_service(state: NodeState) -> bool:
    """Whether Slurm does not use the node, and nobody meant it so."""
    base, flags = split(state.state)
    usable = base in (*TAKES_JOBS, *RESERVED)
    return not usable or bool(flags.strip(PASSING + ASLEEP))


# What a node that others wait for is never seen in for long: Slurm starts nothing there.
GONE = ("down", "drained", "drain", "fail", "error", "inval", "unknown", "future")


def split(state: str) -> tuple[str, str]:
    """The state and its flags, but for those that change nothing.

    >>> split("DOWN*")
    ('down', '*')
    """
    match = re.match(r"([a-z_]*)(.*)", state.lower(), re.DOTALL)
    assert match is not None  # both halves may be empty
    base, flags = match.groups()
    return base, "".join(flag for flag in flags if flag not in _HARMLESS_FLAGS)
