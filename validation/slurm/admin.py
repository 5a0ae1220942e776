"""What a run with --drain or --undrain tells Slurm: on a login node, with an operator's rights.

Each change is one script that reads the node's state again and changes nothing where that is not
what was planned for: between a plan and its confirmation minutes may pass.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.errors import EnvironmentProblem, PlumblineError
from cluster.hostlist import compress
from cluster.slurm import drain_reasons
from cluster.slurm.drain_reasons import Shown
from cluster.text import printable
from validation.slurm.client import PREPARE, last_line
from validation.transport import Transport

_TIMEOUT_S = 120
_DENIED = ("access", "permission", "denied", "invalid user id", "not permitted")


class Refused(PlumblineError):
    """Slurm did not do what it was told; one sentence."""


@dataclass(frozen=True, slots=True)
class Drain:
    """A node that is to be drained, and what Slurm shall show as the reason."""

    node: str
    reason: str

    @property
    def command(self) -> str:
        return _words("update", f"NodeName={self.node}", "State=DRAIN", f"Reason={self.reason}")


def resume_command(node: str) -> str:
    return _words("update", f"NodeName={node}", "State=RESUME")


def _words(*arguments: str) -> str:
    return shlex.join(("scontrol", *arguments))


# Of a line of `scontrol show node`: the words of the state, and the reason.
_READ = """\
l=$(scontrol -a -o show node {node}) || exit 1
s=$(printf '%s\\n' "$l" | sed -n 's/.* State=\\([^ ]*\\).*/\\1/p')
r=$(printf '%s\\n' "$l" | sed -n 's/.* Reason=\\(.*\\) \\[[^][]*@[^][]*\\].*/\\1/p')
"""

# Not a node that somebody has drained meanwhile; and a new drain not of one that is away either.
_DRAIN = _READ + 'case $s in {unless}) echo "kept $s $r"; exit 0 ;; esac\n{command} && echo done\n'
_DRAINED = "*DRAIN*"
_NOT_IN_SERVICE = f"{_DRAINED}|*DOWN*|*FAIL*|*MAINT*|*NOT_RESPONDING*|*'*'*"

# Only a node that is drained and still has the reason that was read.
_RESUME = (
    _READ
    + """\
case $s in *DOWN*|*FAIL*|*NOT_RESPONDING*|*'*'*) echo "kept $s $r"; exit 0 ;; *DRAIN*) ;;
*) echo "kept $s $r"; exit 0 ;; esac
[ "$r" = {reason} ] || {{ echo "kept $s $r"; exit 0; }}
{command} && echo done
"""
)


class Operator:
    """Slurm's nodes, seen and changed through a login node."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def look(self, names: Sequence[str]) -> Mapping[str, Shown]:
        """The nodes as Slurm has them now. Raises Refused where it does not say."""
        nodes = shlex.quote(compress(names))
        done = self._run(f"exec scontrol -a -o show node {nodes}\n", "show the nodes")
        try:
            shown = [drain_reasons.shown(line) for line in done.splitlines() if line.strip()]
        except ValueError as error:
            raise Refused(f"scontrol on {self._transport.via}: {error}") from error
        return {node.name: node for node in shown}

    def drain(self, drain: Drain) -> str:
        """Drain it, unless it left service meanwhile; then why it was kept. Raises Refused."""
        return self._drain(drain, _NOT_IN_SERVICE)

    def drain_again(self, drain: Drain) -> str:
        """Drain what this run has resumed, however it is, unless somebody has drained it since."""
        return self._drain(drain, _DRAINED)

    def _drain(self, drain: Drain, unless: str) -> str:
        node = shlex.quote(drain.node)
        script = _DRAIN.format(node=node, unless=unless, command=drain.command)
        return self._changed(script, f"drain {drain.node}")

    def resume(self, node: str, reason: str) -> str:
        """Return it, if it still is drained with this reason; else why it was kept."""
        script = _RESUME.format(
            node=shlex.quote(node), reason=shlex.quote(reason), command=resume_command(node)
        )
        return self._changed(script, f"return {node}")

    def reserve(self, name: str, nodes: Sequence[str]) -> None:
        """Keep nodes from everybody but who submits this run's jobs, until `release`."""
        words = reserve_words(name, nodes)
        self._run(f'{shlex.join(words)} Users="$(id -un)"\n', "reserve the nodes")

    def release(self, name: str) -> None:
        self._run(f"exec {_words('delete', f'ReservationName={name}')}\n", "end the reservation")

    def _changed(self, script: str, what: str) -> str:
        answer = last_line(self._run(script, what))
        if answer == "done":
            return ""
        if answer.startswith("kept "):
            state, _, reason = answer.removeprefix("kept ").partition(" ")
            return printable(f"it is {state} meanwhile" + (f" ({reason})" if reason else ""))
        raise Refused(f"scontrol on {self._transport.via} gave no usable answer: {answer!r}")

    def _run(self, script: str, what: str) -> str:
        done = self._transport.run(PREPARE + script, timeout_s=_TIMEOUT_S)
        if done.status == 127:
            raise EnvironmentProblem(f"{self._transport.via} has no scontrol")
        if done.status != 0:
            why = last_line(done.stderr) or f"exit status {done.status}"
            right = any(word in why.lower() for word in _DENIED)
            needs = "it needs an administrator of Slurm (AdminLevel=Admin), or root"
            hint = f"; {needs}" if right else ""
            raise Refused(f"Slurm did not {what} for {self._transport.via}: {why}{hint}")
        return done.stdout


def reserve_words(name: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Without an end: what is killed half-way leaves its nodes kept, not in service unproven."""
    return (
        *("scontrol", "create", "reservation", f"ReservationName={name}"),
        *("StartTime=now", "Duration=infinite", "Flags=MAINT,IGNORE_JOBS"),
        f"Nodes={compress(nodes)}",
    )
