"""Nodes, from `scontrol --all --details show nodes`, as JSON or one line each. Pure functions.

Details, because only they tell how many GPUs are allocated where Slurm accounts no GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cluster.slurm import node_states
from roles.slurm_exporter.files.slurm_exporter.words import (
    NOTHING,
    Nonsense,
    document,
    gpus_of_gres,
    gpus_of_tres,
    number,
    whole,
)

COMMAND = ("scontrol", "--all", "--details")
JSON = (*COMMAND, "--json", "show", "nodes")
TEXT = (*COMMAND, "--oneliner", "show", "nodes")


@dataclass(frozen=True)
class SlurmNode:
    """States are Slurm's words, the base and its flags, in lower case: idle, drain, not_responding.

    `user` set the reason at `reason_at`, and the node booted at `boot_at`: seconds since 1970, None
    where Slurm does not say. CPUs are what Slurm calls so: threads, or cores where it schedules
    those.
    """

    name: str
    states: frozenset[str]
    reason: str
    user: str
    cpus: int
    cpus_effective: int
    cpus_alloc: int
    gpus: int
    gpus_alloc: int
    partitions: tuple[str, ...]
    reason_at: float | None = None
    boot_at: float | None = None


def from_json(text: str) -> tuple[SlurmNode, ...]:
    """Raises Nonsense."""
    nodes = document(text, "nodes")
    if not isinstance(nodes, list):
        raise Nonsense("nodes is no list")
    return _each([_from_object(node) for node in nodes])


def _from_object(node: Any) -> SlurmNode:
    if not isinstance(node, Mapping):
        raise Nonsense(f"a node is {str(node)[:80]!r}")
    try:
        return SlurmNode(
            name=_text(node["name"]),
            states=_states("+".join(_list(node["state"]))),
            reason=_text(node.get("reason", "")),
            user=_text(node.get("reason_set_by_user", "")),
            cpus=whole(node["cpus"]),
            cpus_effective=whole(node.get("effective_cpus", node["cpus"])),
            cpus_alloc=whole(node["alloc_cpus"]),
            gpus=_gpus(_text(node["gres"]), _text(node["tres"])),
            gpus_alloc=_gpus(_text(node["gres_used"]), _text(node["tres_used"])),
            partitions=_list(node["partitions"]),
            reason_at=_moment(node.get("reason_changed_at")),
            boot_at=_moment(node.get("boot_time")),
        )
    except KeyError as error:
        raise Nonsense(f"a node has no {error.args[0]}") from None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Nonsense(f"{str(value)[:80]!r} is no text")
    return value


def _moment(value: Any) -> float | None:
    """Of seconds since 1970, which are 0 or not set where there is none."""
    try:
        return whole(value) or None
    except Nonsense:
        return None


def _list(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Nonsense(f"{str(value)[:80]!r} is no list")
    return tuple(map(_text, value))


# Free text, an operator's, is in what follows Reason= alone; OS= has spaces, and no equal sign.
_REASON = re.compile(r" Reason=")
_FIELD = re.compile(r"(?:^| )([A-Z][A-Za-z_]*)=(\S*)")
# A reason ends with who set it and when, and may have something like it in the middle. What comes
# after is another field, or the second line of a reason.
_SET_BY = re.compile(
    r"^(?P<reason>.*?) \[(?P<user>[^\s\[\]]+)@(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]"
    r"(?=\s*$|\s+(?:Comment|Extra|InstanceId|InstanceType|ReservationName)=| {8})"
)


def from_text(text: str) -> tuple[SlurmNode, ...]:
    """Raises Nonsense."""
    return _each([_from_line(line) for line in text.splitlines() if line.strip()])


def _from_line(line: str) -> SlurmNode:
    before, after, reason = line, "", ""
    if match := _REASON.search(line):
        before, after = line[: match.start()], line[match.end() :]
    user = at = ""
    if after:
        set_by = _SET_BY.match(after)
        reason, user, at = set_by.group("reason", "user", "at") if set_by else (after, "", "")
    fields = dict(_FIELD.findall(before))
    try:
        cpus = int(number(fields["CPUTot"]))
        return SlurmNode(
            name=fields["NodeName"],
            states=_states(fields["State"]),
            reason=reason.strip(),
            user=user,
            cpus=cpus,
            cpus_effective=int(number(fields.get("CPUEfctv", str(cpus)))),
            cpus_alloc=int(number(fields["CPUAlloc"])),
            gpus=_gpus(fields["Gres"], fields["CfgTRES"]),
            gpus_alloc=_gpus(fields.get("GresUsed", ""), fields["AllocTRES"]),
            partitions=tuple(name for name in fields.get("Partitions", "").split(",") if name),
            reason_at=_local(at),
            boot_at=_local(fields.get("BootTime", "")),
        )
    except KeyError as error:
        raise Nonsense(f"a line has no {error.args[0]}: {line[:80]!r}") from None


def _local(text: str) -> float | None:
    """Slurm's local time; None for its words, such as None and Unknown."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _states(text: str) -> frozenset[str]:
    try:
        return frozenset(word.lower() for word in node_states.words(text))
    except ValueError as error:
        raise Nonsense(str(error)) from None


def _gpus(gres: str, tres: str) -> int:
    """Which of the two knows depends on the version, and on what Slurm accounts."""
    return max(
        0 if gres in NOTHING else gpus_of_gres(gres), 0 if tres in NOTHING else gpus_of_tres(tres)
    )


def _each(nodes: list[SlurmNode]) -> tuple[SlurmNode, ...]:
    names = {node.name for node in nodes}
    if not nodes:
        raise Nonsense("there is no node")
    if len(names) != len(nodes) or "" in names:
        raise Nonsense("a node is there twice, or has no name")
    return tuple(nodes)
