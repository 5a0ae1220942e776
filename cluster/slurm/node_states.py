"""What Slurm's states of a node say: whether it takes a job, is busy, sleeps or is gone.

sinfo writes them as one word with flags behind it ("down*"), scontrol as words with a plus between
them ("DOWN+NOT_RESPONDING") or as a list of JSON, and a node may have several of those.
"""

import re
from dataclasses import dataclass

from cluster.text import printable

# --- as sinfo has them -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeState:
    """What Slurm says of a node."""

    name: str
    state: str  # as sinfo prints it, flags included: "down*", "mixed"
    cpus: int | None = None
    memory_mb: int | None = None
    gres: str = ""
    reason: str = ""
    hostname: str = ""  # by which Slurm reaches it


# States in which a node takes a job, now or when a running one ends. Anything else does not,
# nor does a node with a flag: * no answer, ~ # % ! power saving, $ maintenance, @ ^ reboot.
# `blocked` is idle, and another node of its topology unit has an exclusive job.
TAKES_JOBS = ("idle", "mixed", "allocated", "completing", "planned", "blocked")
_BUSY = ("mixed", "allocated", "completing", "blocked")
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
_ON_PURPOSE = {
    "cloud": "is of a cloud and not there yet",
    "dynamic_future": "is dynamic and not there yet",
    "dynamic_norm": "is dynamic and not there yet",
    "external": "has no slurmd (State=EXTERNAL)",
    "perfctrs": "is used by a job for its network's counters",
    "resume": "is being changed by an administrator",
    "undrain": "is being changed by an administrator",
    "cancel_reboot": "is being changed by an administrator",
}
# The compact words of sinfo %t, and flags that Slurm prints alone, by what is printed otherwise.
_SHORT = {
    "alloc": "allocated",
    "block": "blocked",
    "boot": "reboot",
    "comp": "completing",
    "drain": "drained",
    "drng": "draining",
    "failg": "failing",
    "futr": "future",
    "mix": "mixed",
    "npc": "perfctrs",
    "plnd": "planned",
    "resm": "resume",
    "resv": "reserved",
    "unk": "unknown",
    "powered_down": "idle~",
    "powering_up": "idle#",
    "power_up": "idle#",
    "powering_down": "idle%",
    "power_down": "idle!",
}


def free(state: NodeState) -> bool:
    """Whether a job of ours could start at once."""
    base, flags = split(state.state)
    return base in ("idle", *RESERVED) and not flags.strip("$") and "-" not in state.state


def busy(state: NodeState) -> bool:
    """Whether other jobs run on the node."""
    return split(state.state)[0] in _BUSY


def completing(state: NodeState) -> bool:
    """Whether Slurm waits for the node to finish with a job that has ended."""
    return split(state.state)[0] == "completing" or state.state.endswith("+")


def asleep(state: NodeState) -> bool:
    """Whether power saving has the node switched off, or is switching it on."""
    return any(flag in split(state.state)[1] for flag in ASLEEP)


def on_purpose(state: NodeState, reserved: bool = False) -> str:
    """Why somebody wants the node to take no jobs now, as the end of a sentence; else nothing.

    Of states that would be broken, or are unknown, without that reason. `reserved` says that the
    jobs run inside of a reservation, which may be the one for maintenance.

    >>> on_purpose(NodeState("gpu1", "reboot^"))
    'is rebooting'
    """
    base, flags = split(state.state)
    if base == "reboot":  # an answer is not expected of it
        return FLAGS["@"] if flags == "" else FLAGS["^"]
    if base == "draining" and flags in ("@", "^"):
        return f"is drained and {FLAGS[flags]}"
    silent_or_out = (base == "maint" and "*" in flags) or (base in _TAKEN_OUT and "$" in flags)
    if silent_or_out and not reserved:
        return FLAGS["$"]
    return _ON_PURPOSE.get(base, "")


_TAKEN_OUT = ("down", "drained", "draining")


def out_of_service(state: NodeState) -> bool:
    """Whether Slurm does not use the node, and nobody meant it so."""
    base, flags = split(state.state)
    if on_purpose(state):
        return False
    usable = base in (*TAKES_JOBS, *RESERVED)
    return not usable or bool(flags.strip(PASSING + ASLEEP))


# What a node that others wait for is never seen in for long: Slurm starts nothing there.
GONE = ("down", "drained", "drain", "fail", "error", "inval", "unknown", "future")


def split(state: str) -> tuple[str, str]:
    """The state in sinfo's long form and its flags, but for those that change nothing.

    >>> split("DOWN*")
    ('down', '*')
    >>> split("mix-")
    ('mixed', '')
    """
    match = re.match(r"([a-z_]*)(.*)", state.lower(), re.DOTALL)
    assert match is not None  # both halves may be empty
    base, flags = match.groups()
    known = _SHORT.get(base, base)
    base = known.rstrip("~#%!")
    flags = known.removeprefix(base) + flags.removesuffix("+")  # + is a job that is completing
    return base, "".join(flag for flag in flags if flag not in _HARMLESS_FLAGS)


# --- as scontrol has them -----------------------------------------------------------------------

BUSY = {"ALLOCATED", "ALLOC", "MIXED", "COMPLETING"}
# A node with one of these takes no job, and may yet get rid of it by itself.
UNSETTLED = {
    *("DOWN", "FAIL", "INVALID_REG", "INVAL", "NOT_RESPONDING", "UNKNOWN"),
    *("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT_ISSUED"),
}
DRAINED = {"DRAIN", "DRAINED", "DRAINING"}
# What slurmctld writes when a node has less than slurm.conf declares (node_mgr.c, gres.c). A reason
# of an operator or a health check that began so would have to copy the whole.
WRONG_DECLARATION = re.compile(
    r"Low (RealMemory|TmpDisk) \(reported:.* of configured:.*\)"
    r"|Low (socket\*core\*thread count|socket\*core count|CPUs)(, .*)?"
    r"|gres/\S+ count (reported lower than configured|too low) \(.*\)"
)
SIGNED = re.compile(r"\s*\[(?P<who>[^\]@]*)@(?P<since>[^\]]*)\].*$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as slurmctld sees it."""

    flags: frozenset[str]
    reason: str  # with who gave it, and when

    @property
    def busy(self) -> bool:
        return bool(self.flags & BUSY)

    @property
    def unsettled(self) -> bool:
        return bool(self.flags & UNSETTLED)

    @property
    def drained(self) -> bool:
        return bool(self.flags & DRAINED)

    @property
    def by_slurm(self) -> bool:
        """Drained by Slurm itself, because it had less than was declared then."""
        return self.drained and bool(WRONG_DECLARATION.fullmatch(SIGNED.sub("", self.reason)))

    def __str__(self) -> str:
        state = f"slurmctld holds it as {'+'.join(sorted(self.flags))}"
        return f"{state}: {self.reason}" if self.reason else state


NOWHERE = NodeStatus(frozenset({"UNKNOWN"}), "slurmctld does not know the node")


def words(state: str) -> frozenset[str]:
    """The words of a state. Of the marks that old versions append, only * is one of the words.

    Raises ValueError for a text that is no state.

    >>> sorted(words("DOWN*+DRAIN"))
    ['DOWN', 'DRAIN', 'NOT_RESPONDING']
    """
    known = state.upper().replace("+?", "")  # a flag that this Slurm has no word for
    separated = re.sub(r"[~#!%$@^-]+(?=\+|$)", "", known.replace("*", "+NOT_RESPONDING"))
    if not re.fullmatch(r"[A-Z][A-Z_]*(\+[A-Z][A-Z_]*)*", separated):
        raise ValueError(f"{state[:80]!r} is no state of a node")
    return frozenset(separated.split("+"))


def slurm_nodes(answer: str) -> dict[str, NodeStatus]:
    """NodeName -> state, from lines `NAME STATE REASON…`. Raises ValueError."""
    nodes = {}
    for line in answer.splitlines():
        name, state, *reason = line.split(None, 2)
        nodes[name] = NodeStatus(words(state), printable(reason[0]) if reason else "")
    return nodes
