"""What waits in Slurm's queue, and whether others pre-empt what we would put there."""

from cluster.text import printable
from validation.errors import TransportError
from validation.slurm.client import PREPARE
from validation.transport import Transport

_PENDING = "exec squeue --noheader --states=PENDING --format=%i"
_PREEMPTION = """\
echo "type $(scontrol show config | sed -n 's/^PreemptType *= *//p')"
exec timeout 30 sacctmgr --noheader --parsable2 --readonly list qos format=name,preempt
"""


def pending(transport: Transport) -> int:
    """How many jobs wait, of all users. Raises TransportError where Slurm does not say."""
    done = transport.run(PREPARE + _PENDING, timeout_s=60)
    if done.status != 0:
        raise TransportError(f"{transport.via}: squeue: {_first(done.stderr)}")
    return len(done.stdout.split())


def not_preempted(transport: Transport, qos: str | None) -> str:
    """Why other jobs do not pre-empt those of this QOS; empty where they do.

    Slurm pre-empts by QOS with PreemptType=preempt/qos, and a QOS those that its `preempt` names
    (https://slurm.schedmd.com/preempt.html).
    """
    if qos is None:
        return "no QOS is given that other jobs pre-empt (--qos)"
    done = transport.run(PREPARE + _PREEMPTION, timeout_s=60)
    first, _, table = done.stdout.partition("\n")
    kind = first.removeprefix("type").strip()
    if kind != "preempt/qos":
        return f"Slurm does not pre-empt by QOS (PreemptType={kind or 'unknown'})"
    if done.status != 0:
        return f"sacctmgr does not tell which QOS pre-empts {qos}: {_first(done.stderr)}"
    rows = [line.split("|") for line in table.splitlines() if "|" in line]
    if not any(qos.lower() in row[1].lower().split(",") for row in rows):
        return f"no QOS pre-empts {qos} (sacctmgr show qos format=name,preempt)"
    return ""


def _first(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return printable(lines[0], 200) if lines else "no answer"
