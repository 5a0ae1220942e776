"""The reasons with which we drain a node, and whose they are.

A reason begins with `[plumbline:WHO]`, for programs; the rest is for people. A node that a health
check drained is returned by the health checks, one that a validation drained by a validation:
each knows its own, and leaves all others alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cluster.slurm import node_states
from cluster.text import printable

LONGEST = 200  # of a reason, in characters: sinfo -R and squeue have one line for it
_MOST_CHECKS = 100  # characters of their names
_ALL = "*"  # more checks than are named

_VALIDATION = re.compile(r"\[plumbline:validation/([a-z0-9_,*]+)\] ")
_REASON = re.compile(r"\bReason=(.*?) \[[^\[\]]*@[^\[\]]*\]")


def reason(who: str, text: str) -> str:
    """A reason as Slurm shows it: machines read up to the bracket, people after it.

    >>> reason("munge", "munged does not answer")
    '[plumbline:munge] munged does not answer'
    """
    # scontrol ends a reason at a quote, and prints one of several lines as several.
    return printable(f"[plumbline:{who}] {text}".replace('"', "'"), LONGEST)


def of_validation(checks: Iterable[str], text: str) -> str:
    """The reason of a run that found a node failing; it names all checks, to be held against.

    >>> of_validation(["gpus", "ecc"], "1 GPU found, 2 declared")
    '[plumbline:validation/gpus,ecc] 1 GPU found, 2 declared'
    """
    names = ",".join(dict.fromkeys(checks))
    return reason(f"validation/{names if len(names) <= _MOST_CHECKS else _ALL}", text)


def failed_checks(text: str) -> tuple[str, ...] | None:
    """The checks that a validation's reason names; none where these were too many to name.

    None is the reason of somebody else.

    >>> failed_checks("[plumbline:validation/gpus,ecc] 1 GPU found, 2 declared")
    ('gpus', 'ecc')
    >>> failed_checks("[plumbline:gpu_ecc] GPU 0: …") is None
    True
    """
    match = _VALIDATION.match(text)
    if match is None:
        return None
    return () if match[1] == _ALL else tuple(match[1].split(","))


@dataclass(frozen=True, slots=True)
class Shown:
    """A node as scontrol shows it: words of its state, and its reason without who gave it when."""

    name: str
    words: frozenset[str]
    reason: str

    @property
    def drained(self) -> bool:
        return bool(self.words & node_states.DRAINED)

    @property
    def in_service(self) -> bool:
        """Whether Slurm may give it jobs: neither drained nor away, by whomever."""
        return not self.words & (node_states.DRAINED | node_states.UNSETTLED | _ELSEWHERE)


_ELSEWHERE = {"MAINT", "MAINTENANCE", "FUTURE", "ERROR", "REBOOT_REQUESTED", "INVALID"}


def shown(line: str) -> Shown:
    """One line of `scontrol -o show node`. Raises ValueError for one without a state.

    >>> shown("NodeName=n1 State=IDLE+DRAIN Reason=Prolog error [slurm@2026-11-22T06:00:00]").reason
    'Prolog error'
    """
    name = re.search(r"\bNodeName=(\S+)", line)
    state = re.search(r"\bState=(\S+)", line)
    words = node_states.words(state[1] if state else "")
    given = _REASON.search(line)
    return Shown(name[1] if name else "", words, given[1] if given else "")
