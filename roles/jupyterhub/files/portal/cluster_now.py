"""The cluster as one user may use it now: partitions, GPUs that are free, accounts and limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# States of a node that jobs start on. What follows the word, such as `*` or `~`, says that it does
# not answer, or is powered down.
USABLE = {"idle", "mixed"}
UNLIMITED = {"infinite", "unlimited", "n/a", ""}


@dataclass(frozen=True)
class Gpus:
    """GPUs of one type (a model, or a MIG profile) in a partition."""

    type: str
    per_node: int
    free: int
    total: int
    free_on_one: int


@dataclass(frozen=True)
class Partition:
    """A partition as its users see it now. Times are in minutes; None is no limit."""

    name: str
    default: bool
    nodes: tuple[str, ...]
    idle_nodes: int
    cpus_per_node: int
    free_cpus: int
    memory_mib: int
    limit: int | None
    gpus: tuple[Gpus, ...]


@dataclass(frozen=True)
class Qos:
    """A QOS with what it allows one job: minutes, and GPUs; None is no limit."""

    name: str
    limit: int | None = None
    gpus: int | None = None


@dataclass(frozen=True)
class Association:
    """An account of the user, with its QOS, the first of which jobs have without a word."""

    account: str
    partition: str
    qos: tuple[str, ...]
    default_qos: str
    limit: int | None = None
    gpus: int | None = None


@dataclass(frozen=True)
class Cluster:
    """All of it. `problems` are sentences about what could not be asked."""

    partitions: tuple[Partition, ...] = ()
    associations: tuple[Association, ...] = ()
    default_account: str = ""
    qos: Mapping[str, Qos] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def partition(self, name: str) -> Partition | None:
        """The partition of this name, if the user sees it."""
        return next((found for found in self.partitions if found.name == name), None)

    @property
    def accounts(self) -> tuple[str, ...]:
        """The user's accounts, the default one first."""
        names = dict.fromkeys(each.account for each in self.associations if each.account)
        return tuple(sorted(names, key=lambda name: (name != self.default_account, name)))


def minutes(text: str) -> int | None:
    """The minutes of one of Slurm's times, such as 7-00:00:00 or 30:00; None is no limit."""
    text = text.strip()
    if text.lower() in UNLIMITED:
        return None
    days, _, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if days:
        hours, mins = (*parts, 0)[:2]
        return (int(days) * 24 + hours) * 60 + mins
    if len(parts) == 3:
        return parts[0] * 60 + parts[1]
    return parts[0]  # minutes, or minutes:seconds


def gpus_of(tres: str) -> int | None:
    """The limit of GPUs in a list of TRES, such as cpu=8,gres/gpu=2; None without one."""
    for entry in tres.split(","):
        name, _, number = entry.partition("=")
        if name.strip() == "gres/gpu" and number.strip().isdigit():
            return int(number)
    return None


def gres(text: str) -> dict[str, int]:
    """How many GPUs of each type a node's Gres or GresUsed has; no type is an empty name."""
    found: dict[str, int] = {}
    for entry in re.sub(r"\([^)]*\)", "", text).split(","):
        parts = entry.strip().split(":")
        if parts[0] == "gpu" and parts[-1].isdigit():
            kind = ":".join(parts[1:-1])
            found[kind] = found.get(kind, 0) + int(parts[-1])
    return found


def _lines(answer: Mapping[str, Any]) -> list[str]:
    return [line for line in str(answer.get("out", "")).splitlines() if line.strip()]


def _partition(name: str, rows: list[list[str]]) -> Partition:
    kinds: dict[str, list[tuple[int, int]]] = {}  # (all, free) of each node
    idle = free_cpus = 0
    for _, _, state, has, used, cpus, *_ in rows:
        usable = state in USABLE
        idle += state == "idle"
        free_cpus += int(cpus.split("/")[1]) if usable else 0
        taken = gres(used)
        for kind, number in gres(has).items():
            left = max(number - taken.get(kind, 0), 0) if usable else 0
            kinds.setdefault(kind, []).append((number, left))
    return Partition(
        name=name,
        default=rows[0][0].endswith("*"),
        nodes=tuple(row[1] for row in rows),
        idle_nodes=idle,
        cpus_per_node=max(int(row[5].split("/")[3]) for row in rows),
        free_cpus=free_cpus,
        memory_mib=max(int(row[6]) for row in rows),
        limit=minutes(rows[0][7]),
        gpus=tuple(
            Gpus(
                kind,
                max(total for total, _ in each),
                sum(left for _, left in each),
                sum(total for total, _ in each),
                max(left for _, left in each),
            )
            for kind, each in sorted(kinds.items())
        ),
    )


def _partitions(lines: Iterable[str]) -> tuple[Partition, ...]:
    rows: dict[str, list[list[str]]] = {}
    for line in lines:
        fields = line.split()
        if len(fields) == 8:
            fields[2] = fields[2].rstrip("-")  # planned for a job, and free until then
            rows.setdefault(fields[0].rstrip("*"), []).append(fields)
    found = [_partition(name, each) for name, each in rows.items()]
    return tuple(sorted(found, key=lambda partition: (not partition.default, partition.name)))


def _association(line: str) -> Association:
    account, partition, qos, default, tres, wall = (line.split("|") + [""] * 6)[:6]
    names = tuple(name for name in qos.split(",") if name)
    return Association(account, partition, names, default, minutes(wall), gpus_of(tres))


def _qos(line: str) -> Qos:
    name, wall, tres, of_user = (line.split("|") + [""] * 4)[:4]
    both = [limit for limit in (gpus_of(tres), gpus_of(of_user)) if limit is not None]
    return Qos(name, minutes(wall), min(both, default=None))


def read(answer: Mapping[str, Any]) -> Cluster:
    """The cluster out of what `as_user.look` says."""
    problems = [
        f"{what} ({' '.join(str(answer[key]['err']).split())[:200]})"
        for key, what in (
            ("nodes", "Slurm does not say which nodes there are"),
            ("associations", "Slurm does not say which accounts you have"),
        )
        if answer[key]["code"]
    ]
    account = _lines(answer["account"])
    return Cluster(
        _partitions(_lines(answer["nodes"])),
        tuple(_association(line) for line in _lines(answer["associations"])),
        account[0].strip() if account else "",
        {each.name: each for each in (_qos(line) for line in _lines(answer["qos"]))},
        tuple(problems + ([str(answer["home"])] if answer.get("home") else [])),
    )
